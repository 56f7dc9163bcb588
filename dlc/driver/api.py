"""What `dlc.compile` is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from dlc.driver.compile import Settings
from dlc.driver.make import Wanted, make_model
from dlc.driver.weights import Given
from dlc.errors import UsageError
from dlc.frontend.values import Datum
from dlc.runtime.model import Model


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
) -> Model:
    """Compile a model, from a file (`.dlm`, `.dlir`, `.dlc`) or from its text, to be called here.

    `weights` is the path of a weight file, `"init:SEED"`, or arrays by name; without it the model's own
    files and initialisers are used. `settings` gives values to the parameters of the root module, which
    `module` names where several have entry points. `level` is 0 to 3 as `-O`, `target` as `--target`,
    `matmul` is `blas`, `generated` or `auto`, `disable` names passes to leave out. Raises ModelError
    with everything that is wrong in the model, Unsupported for what dlc cannot do.
    """
    if (path is None) == (text is None):
        raise UsageError(
            "a model is given by its path or by its text, one of both",
            help='write dlc.compile("mlp.dlm") or dlc.compile(text="...")',
        )
    if isinstance(path, str) and "\n" in path:
        raise UsageError(
            "the path of a model has several lines: it is perhaps its text",
            help="write dlc.compile(text=...)",
        )
    wanted = Wanted(
        path=os.fspath(path) if path is not None else "model.dlm",
        text=text,
        module=module,
        parameters=settings or {},
        weights=weights,
        settings=Settings(level, target, matmul, frozenset(disable), verify_each),
    )
    model, _ = make_model(wanted, threads)
    return model
