"""A loaded model: what `dlc.load` gives, and what `dlc.compile` runs in the same process.

Loading never compiles and never runs anything from the file: it checks, copies the code and is done.
The first call prepares the weights where the artifact does not hold them prepared already.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, SupportsIndex

from dlc.errors import UsageError, memory_needed
from dlc.errors.boundary import methods_without_frames, without_frames
from dlc.errors.suggest import did_you_mean
from dlc.runtime import model_repr
from dlc.runtime.artifact.container import Data
from dlc.runtime.artifact.contents import SUFFIX, Artifact
from dlc.runtime.artifact.manifest import DATA, OF_RANK, function_of
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.runner import Runner
from dlc.runtime.calling.shared_entry import PROCESSORS, RankEntryPoint, shared_entries
from dlc.runtime.calling.staged_entry import staged_entries
from dlc.runtime.cpu.threads import check_threads
from dlc.runtime.loaded_code import Loaded, load_code
from dlc.runtime.ranks.agreement import check_same, digest_of, made_by_all
from dlc.runtime.ranks.links import Links
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.session import Session, SessionArrays, saved_arrays
from dlc.runtime.system.atomic_write import OF_OTHERS, check_ending
from dlc.runtime.system.buffers import as_bytes
from dlc.runtime.system.device_names import device_or_none
from dlc.runtime.system.gc_pause import without_collections
from dlc.runtime.system.mapped_files import check_path
from dlc.runtime.weights import model_weights as weight_tables
from dlc.runtime.weights.files import open_weights
from dlc.runtime.weights.keys import warn_of_unused
from dlc.runtime.weights.model_weights import WeightViews
from dlc.runtime.weights.rank_weights import weights_on_rank

if TYPE_CHECKING:
    from dlc.runtime.cuda.driver import Driver


class Times(NamedTuple):
    """How long loading took, in milliseconds; hashing is apart because it grows with the weights.

    `prepare_ms` is what the first call spent on preparing weights, 0 before it and if there was nothing
    to prepare; `upload_ms` what it spent on bringing them to a GPU, likewise.
    """

    load_ms: float
    hash_ms: float
    prepare_ms: float
    upload_ms: float = 0.0


@methods_without_frames
class Model:
    """A compiled model. Its entry points are its methods, and `model["name"]`.

    It never changes and may be called from any number of threads. It is a context manager that closes
    itself, which is needed only to give memory back early.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        threads: int | None = None,
        untrusted: bool = False,
        max_memory: int | None = None,
        device: str | None = None,
        comm: object = None,
        _shared: Loaded | None = None,
    ) -> None:
        """Run an artifact; see `load`. Raises ArtifactError if it is inconsistent or does not fit here."""
        began = time.perf_counter()
        self._artifact = artifact
        self._threads = check_threads(threads)
        if artifact.manifest.promise is not None:
            self._threads = min(self._threads, artifact.manifest.promise.threads)
        self._max_memory = max_memory
        self._wanted_device = device_or_none(device)
        self._loaded = _shared or load_code(artifact, untrusted, self._wanted_device, comm)
        self._table, self._sources = weights_on_rank(artifact, self.rank)
        self._store = self._loaded.weight_store(artifact, self._sources, self._threads)
        entries = self._entries()
        self._entry_points = MappingProxyType(entries)
        # The model's own names come first: entry points `save` and `_store` are `model["..."]` only.
        for name, entry in entries.items():
            if not (name.startswith("_") or hasattr(Model, name)):
                vars(self)[name] = entry
        for entry in entries.values():
            entry.check_at_bounds()
        spent = (time.perf_counter() - began) * 1e3
        self._session_arrays: SessionArrays | None = None
        """What sessions hold, once there is one."""
        self._load_ms = artifact.timings.read_ms + spent

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[object, ...]]:
        data = bytes(self._artifact.to_bytes())
        return _again, (data, self._threads, self._max_memory, self._wanted_device)

    @classmethod
    @memory_needed
    def from_bytes(
        cls,
        data: Data,
        *,
        threads: int | None = None,
        untrusted: bool = False,
        device: str | None = None,
    ) -> Self:
        """The model whose `.dlc` file has these bytes; see `load`."""
        artifact = Artifact.from_bytes(data)
        return cls(artifact, threads=threads, untrusted=untrusted, device=device)

    def _entries(self) -> dict[str, EntryPoint]:
        runner = None
        machine = self._loaded.machine
        mesh, links = self._artifact.manifest.mesh, self.links
        staged = self._artifact.manifest.staged
        shares = links is not None and self._artifact.manifest.training is None and not staged
        kinds = PROCESSORS if machine is None else machine.entry_points
        if links is None:
            kind = kinds.alone
        else:
            kind = kinds.shared if shares else kinds.of_rank
        if machine is not None and self._store is not None:
            runner = Runner(
                machine,
                self._store,
                machine.threads(self._threads),
                self._max_memory,
                self._room(),
                self._artifact.texts,
            )
        parts = {part.entry for each in staged for part in each.parts}
        entries: dict[str, EntryPoint] = {}
        for own in self._artifact.manifest.entries:
            shown = own._replace(name=function_of(own.name)) if mesh else own
            made = EntryPoint if own.name in parts else kind
            entry = entries[own.name] = made(shown, self._loaded.programs[own.name], runner)
            if links is not None and isinstance(entry, RankEntryPoint):
                entry.join(links.entering, takes_part=own.name.endswith(OF_RANK))
        if staged and links is not None:
            return staged_entries(staged, entries, links)
        if not shares or links is None:
            return entries
        axes = Mesh({axis.name: axis.ranks for axis in mesh})
        part = axes.coordinates(links.rank).get(DATA, 0)
        return shared_entries(entries, part, axes.axes.get(DATA, 1))

    def _room(self) -> int | None:
        """What the artifact's promise leaves to a call besides the weights."""
        promise, prepare = self._artifact.manifest.promise, self._loaded.target.prepare
        if promise is None:
            return None
        return promise.memory - len(self._sources) - (0 if prepare is None else prepare.bytes)

    @property
    def name(self) -> str:
        """The name of the model's text, such as `mlp.dlm`."""
        return self._artifact.manifest.model

    @property
    def artifact(self) -> Artifact:
        """What was loaded: manifest and sections."""
        return self._artifact

    @property
    def entry_points(self) -> Mapping[str, EntryPoint]:
        """The functions of the model by name."""
        return self._entry_points

    @property
    def weights(self) -> WeightViews:
        """The weights by path, as read-only views on the model's memory; a rank's parts if it has parts."""
        return WeightViews(self._table, self._sources)

    @property
    def parameters(self) -> int:
        """How many numbers were trained, or are to be: those of states are not among them."""
        return self._artifact.manifest.parameters

    @property
    def threads(self) -> int:
        """How many threads a call may use; the results do not depend on it."""
        return self._threads

    @property
    def gpu(self) -> Driver | None:
        """The GPU that all of it runs on, None for a processor."""
        machine = self._loaded.machine
        return None if machine is None else machine.gpu_alone

    @property
    def links(self) -> Links | None:
        """The ranks among which it runs; None where it runs alone."""
        return self._loaded.links

    @property
    def rank(self) -> int:
        """Which of the ranks of its mesh this is; 0 where it runs alone."""
        return 0 if self.links is None else self.links.rank

    @property
    def device(self) -> str:
        """What it runs on: `cpu`, `cuda:1`, or `cpu+cuda:1` where a part of it is on that GPU."""
        machine = self._loaded.machine
        return "cpu" if machine is None else machine.device

    @property
    def times(self) -> Times:
        """How long loading took."""
        store = self._store
        first = (0.0, 0.0) if store is None else (store.prepare_ms, store.upload_ms)
        return Times(self._load_ms, self._artifact.timings.hash_ms, *first)

    @memory_needed
    def with_weights(self, weights: str | os.PathLike[str] | Mapping[str, object]) -> Model:
        """The same model with other weights, from a safetensors or npz file or a mapping of arrays.

        Nothing is compiled: the code is shared, and weights are prepared again on the first call.
        Every weight must be there, by its path or by its names in checkpoints. Floats are widened where
        the model has wider ones, and rounded where the path begins with `narrow:`. Tensors that the text
        itself takes from a file (`const`) stay. Raises ModelError for missing names and other types,
        UsageError for a file that cannot be read. Warns of arrays of a file that the model does not use.
        """
        manifest = self._artifact.manifest
        if isinstance(weights, str) and weights.startswith("init:"):
            raise UsageError(
                "initial values belong to the model's text, which a compiled model is not",
                code="D0902",
                help=f'write dlc.compile(path, weights="{weights}")',
            )
        if isinstance(weights, Mapping):
            find = weight_tables.from_mapping(weights, manifest.weights)
        else:
            check_path("weights are a file or arrays by name", weights)
            path = os.fspath(weights)
            narrow = path.startswith("narrow:")
            file = open_weights(path.removeprefix("narrow:"))
            find = weight_tables.from_file(file, narrow=narrow)
            warn_of_unused(file.path, file, weight_tables.names_in_files(manifest.weights))
        own = WeightViews(manifest.weights, as_bytes(self._artifact.section("weights")))
        block = weight_tables.fill(
            manifest.weights, lambda row: own.tensor(row.name) if row.constant else find(row)
        )
        return Model(
            self._artifact.with_weights(block.data),
            threads=self._threads,
            max_memory=self._max_memory,
            device=self._wanted_device,
            _shared=self._loaded,
        )

    @memory_needed
    def session(self, saved: str | os.PathLike[str] | None = None, /, **given: object) -> Session:
        """The arrays of the `inout` parameters, for one stream of calls; see `Session`.

        They are zeros, or the first values that the text gives them, at sizes given by name; or arrays
        given by name, which are used as they are; or those of a file that `Session.save` wrote. Raises
        UsageError (D0927) where nothing is `inout`, CallError for arrays and sizes that do not fit.
        """
        if self._session_arrays is None:
            device = "cpu" if self.gpu is None else self.device
            self._session_arrays = SessionArrays(self.name, self._entry_points, device)
        kinds = self._session_arrays
        arrays, sizes = kinds.sorted(given)
        if saved is not None:
            arrays = {**saved_arrays(saved, kinds.items), **arrays}
        return Session(kinds, kinds.held(arrays, sizes))

    @memory_needed
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `.dlc` file; the same model gives the same bytes.

        Raises UsageError: D0502 where it cannot be written, D0924 for the name of another kind of file.
        """
        check_path("a model is saved at a path", path)
        if Path(path).suffix in OF_OTHERS:
            check_ending(path, SUFFIX)
        self._artifact.write(path)

    def cancel(self) -> None:
        """Ask every call that is running now to end soon with a CallError (D0809)."""
        for entry in self._entry_points.values():
            entry.cancel()

    def close(self) -> None:
        """Give the memory back: prepared weights, and what calls work in.

        Calls that run now end as usual, with the right results, and give back theirs then; later ones
        raise CallError (D0811). Any thread may close a model, any number of times.
        """
        for entry in self._entry_points.values():
            entry.close()
        self._store = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __call__(self, /, *args: object, **named: object) -> object:
        """Call the only entry point. Raises UsageError if there are several."""
        if len(self._entry_points) != 1:
            names = ", ".join(self._entry_points)
            raise UsageError(
                f"{self.name} has {len(self._entry_points)} entry points: call one of {names}"
            )
        (entry,) = self._entry_points.values()
        return entry(*args, **named)  # pyright: ignore[reportArgumentType] - `out` is checked there

    def __getitem__(self, name: str) -> EntryPoint:
        """The entry point of that name, also where the model has something of its own by the name.

        Raises UsageError (D0904) if there is none.
        """
        found = self._entry_points.get(name)
        if found is None:
            raise UsageError(
                f"{self.name} has no entry point {name!r}",
                code="D0904",
                help=did_you_mean(str(name), self._entry_points)
                or f"it has {', '.join(self._entry_points)}",
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._entry_points)

    def __getattr__(self, name: str) -> EntryPoint:
        # Only for names that are not there: entry points are in the instance itself.
        known = vars(self).get("_entry_points", ())
        way_out = f"; {did_you_mean(name, known) or 'it has ' + ', '.join(known)}" if known else ""
        raise AttributeError(f"the model has no entry point {name}{way_out}")

    def __setattr__(self, name: str, value: object) -> None:
        # What is its own is set while it is made and closed.
        if not name.startswith("_"):
            raise AttributeError(
                f"a model never changes: {name} cannot be set; with_weights({{...}}) gives a model with "
                "other weights, dlc.load(path, threads=N) one with other settings"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return model_repr.as_text(self)

    def _repr_html_(self) -> str:
        return model_repr.as_html(self)


def _again(data: bytes, threads: int, max_memory: int | None, device: str | None) -> Model:
    """A model that was pickled."""
    artifact = Artifact.from_bytes(data)
    return Model(artifact, threads=threads, max_memory=max_memory, device=device)


def _check_kinds(sha256: object, max_memory: object, device: object) -> None:
    """Raises UsageError (D0902) for arguments of other kinds than `load` says."""
    if sha256 is not None and not isinstance(sha256, str):
        raise UsageError(
            f"sha256 is a text, found {sha256!r}", code="D0902", help="pass what sha256sum prints"
        )
    if max_memory is not None and not isinstance(max_memory, SupportsIndex):
        raise UsageError(
            f"max_memory is a number of bytes, found {max_memory!r}",
            code="D0902",
            help="write max_memory=512 << 20",
        )
    if device is not None and not isinstance(device, str):
        raise UsageError(
            f"device is the name of one, found {device!r}",
            code="D0902",
            help='write device="cuda:1"',
        )


@without_frames
@memory_needed
def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    sha256: str | None = None,
    untrusted: bool = False,
    max_memory: int | None = None,
    device: str | None = None,
    copy: bool = False,
    comm: object = None,
) -> Model:
    """Load a compiled model from a `.dlc` file.

    `threads` is how many a call may use (default: the CPUs that this process may use; the results do
    not depend on it). `sha256` pins the file to what `sha256sum` prints for it. A `.dlc` file contains
    machine code and is as trustworthy as any program: with `untrusted=True` its code is never mapped,
    so that it can be inspected but not called. `max_memory` limits, in bytes, the working memory of a
    call. `device` is what it runs on, `cpu`, or `cuda:0` and so on: without it the first GPU, if the file
    has code for one; where a text says `on cuda:0`, that is the GPU that is named here.

    The file is mapped: weights are read from it as they are needed, so its contents must not change while
    the model lives. `copy=True` reads all of it now, for a file whose contents may. Another file may be
    renamed over it either way, as dlc writes its own.

    `comm` is the communicator of mpi4py whose ranks run together a model that was compiled for them
    (`dlc compile --ranks N`): all call it at the same time with the same arrays, each computes its part of
    the batch, and each has the whole results. A batch without equal parts is computed by every rank.

    Raises ArtifactError if the file is damaged, inconsistent, or not for this machine and device;
    Unsupported for a device that there is not; UsageError if it cannot be read.
    """
    check_path("a model is loaded from the path of its file", path)
    _check_kinds(sha256, max_memory, device)
    if Path(path).suffix in (".dlm", ".dlir", ".onnx"):
        raise UsageError(
            f"{os.fspath(path)} must be compiled first",
            code="D0903",
            help="write dlc.compile(path) for dlc.load(path)",
        )
    with without_collections():
        artifact = made_by_all(comm, lambda: Artifact.read(path, sha256=sha256, copy=copy))
        table = artifact.manifest
        check_same(comm, {"artifact": digest_of([repr((table.sections, table.weights))])})
        return Model(
            artifact,
            threads=threads,
            untrusted=untrusted,
            max_memory=max_memory,
            device=device,
            comm=comm,
        )
