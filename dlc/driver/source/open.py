"""Opening a model: the text of a model, IR of any level, an artifact's graph, or ONNX, as a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dlc.dialects.builtin import Module
from dlc.driver.source.extensions import load_extensions
from dlc.driver.source.importing import Asked
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.stages import stages_of
from dlc.driver.source.training_text import take_training
from dlc.errors import DlcError, UsageError
from dlc.frontend.elaborate import elaborate
from dlc.frontend.elaboration.values import Datum
from dlc.frontend.training import block as frontend
from dlc.frontend.training.step import Purpose
from dlc.ir.core import Op
from dlc.ir.passes import Context
from dlc.ir.verify import verify
from dlc.planning.capacity import check_interface
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Layer, Training
from dlc.runtime.system.buffers import as_bytes
from dlc.runtime.system.mapped_files import map_file
from dlc.runtime.weights.model_weights import WeightViews
from dlc.text.ir.parser import parse_ops
from dlc.text.ir.short import is_short, parse_short
from dlc.text.source import Source, readable

MAX_IR_BYTES = 64 << 20
"""The longest IR that is read: a graph of 100,000 operations has some ten million bytes."""

Chosen = Mapping[str, Datum]
"""Values for the parameters of the root module, by name."""
Places = Mapping[str, str]
"""Devices of submodules, by path."""


def open_model(
    path: str | Path,
    *,
    text: str | None = None,
    module: str | None = None,
    settings: Chosen | None = None,
    places: Places | None = None,
    asked: Asked | None = None,
) -> SourceModel:
    """The model in a file; with `text`, in that text under the name `path`. An ONNX file is as `asked`.

    Raises UsageError for an ending that is not dlc's, a file that cannot be read, and parameters of what
    has none; ModelError for a model that is wrong.
    """
    load_extensions()
    path = Path(path)
    opener = OPENERS.get(path.suffix if text is None else ".dlm")
    if opener is None:
        raise UsageError(
            f"{path.name or repr(str(path))} is no model",
            code="D0903",
            help=f"models end in {', '.join(OPENERS)}",
        )
    if text is None:
        map_file(path)  # whatever kind of model it is, a file that cannot be read is said alike
    asked = asked or Asked()
    asked.check_for(path)
    opened = opener(path, text, module, settings or {}, places or {}, asked)
    with opened.quoting():
        check_interface(opened.module)
    opened.reopen = lambda: open_model(
        path, text=text, module=module, settings=settings, places=places, asked=asked
    )
    return opened


def open_training(
    path: str | Path,
    *,
    text: str | None = None,
    module: str | None = None,
    settings: Chosen | None = None,
    places: Places | None = None,
    purpose: Purpose = "train",
) -> SourceModel:
    """The functions that train the model in a text, as its `train` block says; or its loss alone.

    Raises UsageError (D0905) for what is no text of a model, ModelError for one without such a block.
    """
    path = Path(path)
    if text is None and path.suffix != ".dlm":
        raise UsageError(
            f"{path.name} is no text of a model, and only such says how to train",
            code="D0905",
            help="training takes a .dlm with a `train` block, or a .dlc that was made to train",
        )
    if text is None:
        map_file(path)
    opened = _open_text(path, text, module, settings or {}, places or {}, purpose=purpose)
    opened.reopen = lambda: open_training(
        path, text=text, module=module, settings=settings, places=places, purpose=purpose
    )
    return opened


def _open_text(
    path: Path,
    text: str | None,
    module: str | None,
    settings: Chosen,
    places: Places,
    _: Asked | None = None,
    *,
    purpose: Purpose = "call",
) -> SourceModel:
    context = Context()
    made = elaborate(
        path,
        text=text,
        module=module,
        settings=settings,
        values=context.values,
        purpose=purpose,
        places=places,
    )
    return SourceModel(
        made.module,
        context,
        readable(path.name),
        made.texts,
        path.parent,
        layers=tuple(Layer(row.path, row.type, row.parameters) for row in made.layers),
        warnings=made.warnings,
        unkept=made.unkept,
        training=_training_facts(made.train) if made.train and purpose != "call" else None,
        can_train=made.train is not None,
    )


def _training_facts(found: frontend.Training) -> Training:
    """What a `train` block says, as an artifact has it."""
    path, every = found.checkpoint or ("", 1)
    return Training(
        found.module,
        tuple([name for name, _ in found.inputs]),
        found.data,
        found.batch,
        found.epochs,
        found.seed,
        path,
        every,
    )


def _open_ir(
    path: Path,
    text: str | None,
    module: str | None,
    settings: Chosen,
    places: Places,
    _: Asked,
) -> SourceModel:
    _refuse_choices(path, module, settings, places)
    name = readable(path.name)
    found = Source.read(path, name, MAX_IR_BYTES).text if text is None else text
    parsed = read_ir(found, name)
    training = take_training(parsed)
    opened = SourceModel(parsed, Context(), name, {name: found}, path.parent, training=training)
    _place(opened)
    return opened


def _place(opened: SourceModel) -> None:
    """Note the level of IR that was read."""
    opened.stages = stages_of(opened.module)
    opened.stage = opened.read_at = opened.stages[0]


def _refuse_choices(path: Path, module: str | None, settings: Chosen, places: Places) -> None:
    """Parameters were chosen when the model's text became this file."""
    if settings or places or module is not None:
        raise UsageError(
            f"{path.name} has no modules and no parameters any more",
            code="D0919",
            help="choose them where the model's text is compiled",
        )


def _open_artifact(
    path: Path,
    text: str | None,
    module: str | None,
    settings: Chosen,
    places: Places,
    _: Asked,
) -> SourceModel:
    _refuse_choices(path, module, settings, places)
    artifact = Artifact.read(path)
    graph = _graph_of(artifact)
    listing = f"the graph of {readable(path.name)}"
    parsed = read_ir(graph, listing)
    facts = artifact.manifest
    weights = WeightViews(facts.weights, as_bytes(artifact.section("weights")))
    opened = SourceModel(
        parsed,
        Context(),
        facts.model,
        artifact.texts(),
        path.parent,
        layers=facts.layers,
        arrays={row.name: weights.tensor(row.name).bits for row in facts.weights},
        training=facts.training,
        listings={listing: graph},
    )
    _place(opened)
    return opened


def _graph_of(artifact: Artifact) -> str:
    """The text of its graph. Raises ArtifactError (D0611) for one that is no text."""
    try:
        return str(artifact.section("graph"), "utf-8")
    except UnicodeDecodeError as error:
        raise artifact.error_context.error(
            "D0611", "it is not UTF-8", section="graph", inside=error.start
        ) from None


def _open_onnx(
    path: Path,
    text: str | None,
    module: str | None,
    settings: Chosen,
    places: Places,
    asked: Asked,
) -> SourceModel:
    _refuse_choices(path, module, settings, places)
    context = Context()
    made = asked.read(path, context.values)
    name = readable(path.name)
    texts = {name: made.listing}
    return SourceModel(
        made.module,
        context,
        name,
        texts,
        path.parent,
        arrays=made.arrays,
        warnings=made.warnings,
        numbers=made.numbers,
    )


OPENERS: dict[str, Callable[[Path, str | None, str | None, Chosen, Places, Asked], SourceModel]] = {
    ".dlm": _open_text,
    ".dlir": _open_ir,
    ".dlc": _open_artifact,
    ".onnx": _open_onnx,
}
"""How each kind of file is opened, by its ending."""


def read_ir(text: str, name: str) -> Module:
    """The module of IR in a text, or of the functions and programs that the text is.

    It is as MLIR reads it, or in the short spelling (`dlc.text.ir.short`).
    Raises ModelError with what is wrong in it.
    """
    module = _module_of(parse_short(text, name) if is_short(text) else parse_ops(text, name))
    try:
        verify(module)
    except DlcError as error:
        error.sources.setdefault(name, text)
        raise
    return module


def _module_of(ops: Sequence[Op]) -> Module:
    """The module that the operations of a text are, or one around them."""
    match ops:
        case [Module() as module]:
            return module
        case _:
            module = Module.empty(ops[0].location)
            for op in ops:
                module.body.append(op)
            return module


__all__ = ["OPENERS", "open_model", "open_training", "read_ir"]
