"""Opening a model: text, IR of any level, an artifact's graph, ONNX, PyTorch's programs, or StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from dlc.dialects.builtin import Module
from dlc.driver.source.extensions import load_extensions
from dlc.driver.source.import_request import ImportRequest
from dlc.driver.source.imported import source_of
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.stages import stages_of
from dlc.driver.source.training_text import take_training
from dlc.errors import DlcError, UsageError
from dlc.frontend.elaborate import elaborate
from dlc.frontend.elaboration.values import Datum
from dlc.frontend.training import block as frontend
from dlc.frontend.training.step import Purpose
from dlc.importers.imported import ImportedModel
from dlc.ir.core import Op
from dlc.ir.passes import Context
from dlc.ir.types import F32
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
    import_request: ImportRequest | None = None,
) -> SourceModel:
    """The model in a file; with `text`, in that text under the name `path`.

    `import_request` has the options of an ONNX file.

    Raises UsageError for an unknown ending, a file that cannot be read, and parameters of a model that
    has none; ModelError for a model that is wrong.
    """
    load_extensions()
    path = Path(path)
    opener = OPENERS.get(path.suffix if text is None else ".dlm")
    if opener is None:
        raise UsageError(
            f"{path.name or repr(str(path))} is not a model",
            code="D0903",
            help=f"models end in {', '.join(OPENERS)}",
        )
    if text is None:
        map_file(path)  # one message for an unreadable file, whatever its kind
    import_request = import_request or ImportRequest()
    import_request.check_for(path)
    chosen = Opening(text, module, settings or {}, places or {}, import_request)
    model = opener(path, chosen)
    with model.quoting():
        check_interface(model.module)
    model.reopen = lambda: open_model(
        path,
        text=text,
        module=module,
        settings=settings,
        places=places,
        import_request=import_request,
    )
    return model


def open_training(
    path: str | Path,
    *,
    text: str | None = None,
    module: str | None = None,
    settings: Chosen | None = None,
    places: Places | None = None,
    purpose: Purpose = "train",
    block: str | None = None,
) -> SourceModel:
    """The functions that train the model in a text, as a `train` block says; or its loss alone.

    `block` is the name of that block, where the text has several. Raises UsageError (D0539) for a block
    that is not there, (D0905) for a file that is not model text, ModelError for one without such a block.
    """
    path = Path(path)
    if text is None and path.suffix != ".dlm":
        raise UsageError(
            f"{path.name or repr(str(path))} is not model text, and only model text says how to train",
            code="D0905",
            help="training takes a .dlm with a `train` block, or a .dlc that was made to train",
        )
    if text is None:
        map_file(path)
    chosen = Opening(text, module, settings or {}, places or {})
    model = _open_text(path, chosen, purpose=purpose, block=block)
    model.reopen = lambda: open_training(
        path,
        text=text,
        module=module,
        settings=settings,
        places=places,
        purpose=purpose,
        block=block,
    )
    return model


class Opening(NamedTuple):
    """How a file is opened: its text if that is given, the module, settings and places that were chosen,
    and what an import was asked for."""

    text: str | None
    module: str | None
    settings: Chosen
    places: Places
    import_request: ImportRequest = ImportRequest()

    def refuse_choices(self, path: Path) -> None:
        """Refuse parameters of IR and artifacts: they were chosen when the text was compiled."""
        if self.settings or self.places or self.module is not None:
            raise UsageError(
                f"{path.name} has no modules and no parameters any more",
                code="D0919",
                help="choose them where the model's text is compiled",
            )


Opener: TypeAlias = Callable[[Path, Opening], SourceModel]
"""From a path and how it is opened to what the file holds."""


def _open_text(
    path: Path,
    chosen: Opening,
    *,
    purpose: Purpose = "call",
    block: str | None = None,
) -> SourceModel:
    context = Context()
    elaborated = elaborate(
        path,
        text=chosen.text,
        module=chosen.module,
        settings=chosen.settings,
        values=context.values,
        purpose=purpose,
        places=chosen.places,
        block=block,
    )
    return SourceModel(
        elaborated.module,
        context,
        readable(path.name),
        elaborated.texts,
        path.parent,
        layers=tuple(Layer(row.path, row.type, row.parameters) for row in elaborated.layers),
        warnings=elaborated.warnings,
        unkept=elaborated.unkept,
        training=_training_facts(elaborated.train)
        if elaborated.train and purpose != "call"
        else None,
        can_train=elaborated.train is not None,
        blocks=elaborated.blocks,
        frozen=elaborated.train.frozen if elaborated.train else frozenset(),
        entry_places=elaborated.train.places if elaborated.train else {},
    )


def _training_facts(block: frontend.Training) -> Training:
    """The `train` block as an artifact records it."""
    path, every = block.checkpoint or ("", 1)
    return Training(
        block.module,
        tuple([name for name, _ in block.inputs]),
        block.data,
        block.batch,
        block.epochs,
        block.seed,
        path,
        every,
        block.block,
        block.accumulate,
        block.parts,
        block.stop,
        block.keep,
        block.rate,
        block.precision.name if block.precision else F32.name,
        block.scale is not None and block.scale.is_dynamic,
    )


def _open_ir(path: Path, chosen: Opening) -> SourceModel:
    chosen.refuse_choices(path)
    name = readable(path.name)
    given = chosen.text
    source_text = Source.read(path, name, MAX_IR_BYTES).text if given is None else given
    parsed = read_ir(source_text, name)
    training = take_training(parsed)
    model = SourceModel(
        parsed, Context(), name, {name: source_text}, path.parent, training=training
    )
    _place(model)
    return model


def _place(model: SourceModel) -> None:
    """Note the level of IR that was read."""
    model.stages = stages_of(model.module)
    model.stage = model.read_at = model.stages[0]


def _open_artifact(path: Path, chosen: Opening) -> SourceModel:
    chosen.refuse_choices(path)
    return open_artifact(Artifact.read(path), path.name, path.parent)


def open_artifact(artifact: Artifact, name: str, folder: Path) -> SourceModel:
    """The model whose graph is in an artifact, with its weights; `name` is that of the file."""
    graph = _graph_of(artifact)
    listing = f"the graph of {readable(name)}"
    parsed = read_ir(graph, listing)
    facts = artifact.manifest
    weights = WeightViews(facts.weights, as_bytes(artifact.section("weights")))
    model = SourceModel(
        parsed,
        Context(),
        facts.model,
        artifact.texts(),
        folder,
        layers=facts.layers,
        arrays={row.name: weights.tensor(row.name).bits for row in facts.weights},
        training=facts.training,
        listings={listing: graph},
        made_with=facts.compiler.flags,
    )
    _place(model)
    return model


def _graph_of(artifact: Artifact) -> str:
    """The text of its graph. Raises ArtifactError (D0611) if it is not text."""
    try:
        return str(artifact.section("graph"), "utf-8")
    except UnicodeDecodeError as error:
        raise artifact.error_context.error(
            "D0611", "it is not UTF-8", section="graph", inside=error.start
        ) from None


def _open_onnx(path: Path, chosen: Opening) -> SourceModel:
    chosen.refuse_choices(path)
    return source_of(chosen.import_request.read(path), readable(path.name), path.parent)


def _read_pt2(path: Path) -> ImportedModel:
    from dlc.importers.torch.exporting import read_pt2

    return read_pt2(path)


def _read_mlir(path: Path) -> ImportedModel:
    from dlc.importers.stablehlo.opening import read_mlir

    return read_mlir(path)


def _open_imported(read: Callable[[Path], ImportedModel]) -> Opener:
    """The opener of files of another framework, which have shapes and bounds of their own."""

    def opener(path: Path, chosen: Opening) -> SourceModel:
        chosen.refuse_choices(path)
        return source_of(read(path), readable(path.name), path.parent)

    return opener


OPENERS: dict[str, Opener] = {
    ".dlm": _open_text,
    ".dlir": _open_ir,
    ".dlc": _open_artifact,
    ".onnx": _open_onnx,
    ".pt2": _open_imported(_read_pt2),
    ".mlir": _open_imported(_read_mlir),
}
"""The opener of each kind of file, by its ending."""


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


__all__ = ["OPENERS", "open_artifact", "open_model", "open_training", "read_ir"]
