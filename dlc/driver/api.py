"""What `dlc.compile` and `dlc.trainer` are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from dlc.driver.compile import Settings
from dlc.driver.make import Wanted, make_model
from dlc.driver.train import make_trainer
from dlc.driver.weights import Given
from dlc.errors import UsageError
from dlc.frontend.values import Datum
from dlc.runtime.model import Model
from dlc.runtime.trainer import Trainer


def compile(
    path: str | os.PathLike[str] | None = None,
    *,
    text: str | None = None,
    weights: Given = None,
    module: str | None = None,
    settings: Mapping[str, Datum] | None = None,
    level: int = 2,
    target: str = "cpu",
    matmul: str = "auto",
    disable: Iterable[str] = (),
    verify_each: bool = False,
    threads: int | None = None,
    max_memory: int | None = None,
    dims: Mapping[str, tuple[int, int]] | None = None,
    places: Mapping[str, str] | None = None,
) -> Model:
    """Compile a model, from a file (`.dlm`, `.dlir`, `.dlc`) or from its text, to be called here.

    `weights` is the path of a weight file, `"init:SEED"`, or arrays by name; without it the model's own
    files and initialisers are used. `settings` gives values to the parameters of the root module, which
    `module` names where several have entry points. `level` is 0 to 3 as `-O`, `target` as `--target`,
    `matmul` is `blas`, `generated` or `auto`, `disable` names passes to leave out. `max_memory` is the
    most bytes that a call may need, as `limit memory`; `dims` are narrower bounds of named sizes, such as
    `{"B": (1, 64)}`; `places` puts submodules on devices, such as `{"head": "cpu:1"}`. Raises ModelError
    with everything that is wrong in the model, Unsupported for what dlc cannot do.
    """
    _one_of(path, text, "dlc.compile")
    wanted = Wanted(
        path=os.fspath(path) if path is not None else "model.dlm",
        text=text,
        module=module,
        parameters=settings or {},
        places=places or {},
        weights=weights,
        settings=Settings(
            level, target, matmul, frozenset(disable), verify_each, max_memory, dims or {}
        ),
    )
    model, _ = make_model(wanted, threads)
    return model


def trainer(
    path: str | os.PathLike[str] | None = None,
    *,
    text: str | None = None,
    weights: Given = None,
    module: str | None = None,
    level: int = 2,
    matmul: str = "auto",
    threads: int | None = None,
    **settings: Datum,
) -> Trainer:
    """A trainer for a model with a `train` block, from a file (`.dlm`, or a `.dlc` made to train) or text.

    `settings` are parameters of the root module, and `batch`, `epochs` and `seed` of the `train` block.
    The whole step, forward, backward and optimizer, is compiled as one program. `weights` are what it
    begins with: a file, `"init:SEED"`, or arrays by name.
    """
    _one_of(path, text, "dlc.trainer")
    wanted = Wanted(
        path=os.fspath(path) if path is not None else "model.dlm",
        text=text,
        module=module,
        parameters=settings,
        weights=weights,
        settings=Settings(level, matmul=matmul),
    )
    found, _ = make_trainer(wanted, threads)
    return found


def _one_of(path: object, text: str | None, function: str) -> None:
    if (path is None) == (text is None):
        raise UsageError(
            "a model is given by its path or by its text, one of both",
            help=f'write {function}("mlp.dlm") or {function}(text="...")',
        )
    if isinstance(path, str) and "\n" in path:
        raise UsageError(
            "the path of a model has several lines: it is perhaps its text",
            help=f"write {function}(text=...)",
        )
