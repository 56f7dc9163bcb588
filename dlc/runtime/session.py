"""Sessions: the arrays that entry points change, kept from one call to the next.

A session holds an array for each `inout` parameter of the model, by name: entry points that name one alike,
such as `prefill` and `step`, share it. Calls take the other arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from operator import index
from threading import Lock
from typing import TYPE_CHECKING, NoReturn, SupportsIndex, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError, UsageError
from dlc.errors.boundary import methods_without_frames, without_frames
from dlc.errors.suggest import did_you_mean
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.dtypes import BF16, DTYPES, byte_count
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.manifest import Dim, Input
from dlc.runtime.artifact.spelling import describe, python_name
from dlc.runtime.calling.arguments import as_changed_array
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.signature import default_value
from dlc.runtime.system.atomic_write import check_ending
from dlc.runtime.system.available_memory import check_fits
from dlc.runtime.system.buffers import ALIGNMENT, address
from dlc.runtime.system.mapped_files import check_path
from dlc.runtime.weights.files import open_weights

if TYPE_CHECKING:
    from dlc.runtime.calling.results import Out

Array = NDArray[np.generic]
Held: TypeAlias = "Array | Tensor"
"""An array of a session: of NumPy, or a tensor where NumPy has no such dtype, or it is on a GPU."""


class SessionArrays:
    """What the sessions of a model hold: the `inout` parameters of its entry points, by name."""

    def __init__(self, model: str, points: Mapping[str, EntryPoint], device: str) -> None:
        """Raises UsageError (D0927) where no parameter is `inout`, or two of one name differ."""
        self.model = model
        self.points = points
        self.device = device
        self.items: dict[str, Input] = {}
        self._points_of: dict[str, str] = {}
        self.dims: dict[str, Dim] = {}
        for point in points.values():
            for item in point.inputs:
                if item.name in point.entry.inouts:
                    self._add(item, point)
        if not self.items:
            raise UsageError(
                f"{model} has no inout parameter, so that a session would hold nothing",
                code="D0927",
                help="call the model itself",
            )
        self._named = {python_name(name): name for name in self.items}
        self._sizes = {
            name: [size_expressions.parse(size) for size in item.shape]
            for name, item in self.items.items()
        }

    def _add(self, item: Input, point: EntryPoint) -> None:
        known = self.items.setdefault(item.name, item)
        self._points_of.setdefault(item.name, point.name)
        if (known.dtype, known.shape) != (item.dtype, item.shape):
            raise self._differ(
                item, point, "is", describe, "two names, or one type and one name a size"
            )
        if known.default != item.default:
            raise self._differ(
                item, point, "begins as", _beginning, "two names, or one first value"
            )
        mentioned = {name for size in item.shape for name in size_expressions.parse(size).names}
        self.dims.update({dim.name: dim for dim in point.dims if dim.name in mentioned})

    def _differ(
        self, item: Input, point: EntryPoint, verb: str, told: Callable[[Input], str], way_out: str
    ) -> UsageError:
        """The error for a parameter of which two entry points say different things."""
        known, other = self.items[item.name], self._points_of[item.name]
        return UsageError(
            f"{item.name} {verb} {told(known)} in {other} and {verb} {told(item)} in {point.name}, so that "
            f"a session of {self.model} cannot hold it for both",
            code="D0927",
            help=f"give it {way_out} in the text",
        )

    def sorted(self, given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, int]]:
        """What is given by name: arrays and sizes. Raises CallError (D0801) for other names."""
        arrays: dict[str, object] = {}
        sizes: dict[str, int] = {}
        for name, value in given.items():
            if name in self._named:
                arrays[self._named[name]] = value
            elif name in self.dims:
                if not hasattr(value, "__index__"):
                    told = f"the size {name} is {value!r}, not a whole number"
                    raise self._refuse("D0801", told, f"write {name}=8")
                sizes[name] = index(cast("SupportsIndex", value))
            else:
                known = [*self._named, *self.dims]
                way_out = did_you_mean(name, known) or f"it has {', '.join(known)}"
                raise self._refuse("D0801", f"there is no array or size {name}", way_out)
        return arrays, sizes

    def held(self, given: Mapping[str, object], sizes: Mapping[str, int]) -> dict[str, Held]:
        """An array for each parameter: the given one, or the first value in the text, or zeros.

        Raises CallError: D0801 for a size that nothing tells, D0804 for one out of bounds, D0803 for an
        array that does not fit, D0802, D0805 and D0820 as calls do.
        """
        arrays = {
            name: as_changed_array(value, self.items[name], "session")
            for name, value in given.items()
        }
        values = self._bound({name: array.shape for name, array in arrays.items()}, sizes)
        return {
            name: self._placed(arrays[name] if name in arrays else self._first(item, values), item)
            for name, item in self.items.items()
        }

    def sizes(self, held: Mapping[str, Held]) -> dict[str, int]:
        """The sizes of the arrays of a session."""
        return self._bound({name: array.shape for name, array in held.items()}, {})

    def _bound(
        self, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int]
    ) -> dict[str, int]:
        """A number for each size: the one given, that of an array, or the only one there can be."""
        values = {dim.name: dim.lower for dim in self.dims.values() if dim.lower == dim.upper}
        for name, shape in shapes.items():
            for size, number in zip(self.items[name].shape, shape, strict=False):
                if size in self.dims:
                    values[size] = number
        values.update(given)
        for name, dim in self.dims.items():
            if name not in values:
                raise self._refuse("D0801", f"the size {name} must be given", f"write {name}=...")
            if not dim.lower <= values[name] <= (values[name] if dim.upper is None else dim.upper):
                upper = "" if dim.upper is None else dim.upper
                raise self._refuse("D0804", f"{name} is {values[name]}, not {dim.lower}..{upper}")
        for name, shape in shapes.items():
            wanted = self._shape(name, values)
            if wanted != shape:
                raise self._refuse("D0803", f"{name} has the shape {shape}, where {wanted} fits")
        return values

    def _shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple([size.evaluate(sizes) for size in self._sizes[name]])

    def _first(self, item: Input, sizes: Mapping[str, int]) -> Array:
        """The value in the text, or zeros."""
        default = default_value(item)
        if default is not None:
            return np.array(default.bits)
        shape, dtype = self._shape(item.name, sizes), DTYPES[item.dtype]
        length = byte_count(shape, dtype)
        if length is None:
            raise self._refuse("D0804", f"{item.name} would be {list(shape)}")
        check_fits(f"{item.name}: {item.dtype}{list(shape)}", length)
        # Pages of zeros that nobody writes take no memory and no time.
        block = np.zeros(length + ALIGNMENT, np.uint8)
        return np.ndarray(shape, dtype.numpy, block, -address(block) % ALIGNMENT)

    def _placed(self, array: Array, item: Input) -> Held:
        """An array on the model's device, as calls take it."""
        if self.device != "cpu":
            return Tensor.from_bits(array, item.dtype).to(self.device)
        return Tensor.from_bits(array, item.dtype) if DTYPES[item.dtype] is BF16 else array

    def _refuse(self, code: str, message: str, help: str | None = None) -> CallError:
        return CallError(f"session of {self.model}: {message}", code=code, help=help)


@methods_without_frames
class Session:
    """The arrays that the entry points of a model change. Its methods are the entry points.

    They take the arguments that are not `inout`. One call at a time: a second one is refused (D0821).
    """

    def __init__(self, kinds: SessionArrays, held: dict[str, Held]) -> None:
        self._kinds = kinds
        self._held = held
        self._lock = Lock()

    @property
    def arrays(self) -> Mapping[str, Held]:
        """The arrays by the names of the parameters. They change with each call, and may be written."""
        return _Arrays(self._held)

    def __getitem__(self, name: str) -> Callable[..., object]:
        """The entry point of that name. Raises UsageError (D0904) if there is none."""
        points = self._kinds.points
        if name not in points:
            raise UsageError(
                f"{self._kinds.model} has no entry point {name!r}",
                code="D0904",
                help=did_you_mean(name, points) or f"it has {', '.join(points)}",
            )
        return _SessionEntry(points[name], self._kinds, self._held, self._lock)

    def __copy__(self) -> Session:
        return self.copy()

    def __deepcopy__(self, memo: Mapping[int, object]) -> Session:
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a session is not pickled, since it belongs to a model",
            help="write its arrays, session.save(path), and begin with them: model.session(path)",
        )

    def __getattr__(self, name: str) -> Callable[..., object]:
        # Only for names that are not there: each entry point is made where it is first called.
        try:
            found = self[name]
        except UsageError as error:
            raise AttributeError(error.diagnostics[0].message) from None
        vars(self)[name] = found
        return found

    def __repr__(self) -> str:
        arrays = ", ".join(
            f"{name}: {self._kinds.items[name].dtype}{list(array.shape)}"
            for name, array in self._held.items()
        )
        return f"<session of {self._kinds.model}: {arrays}>"

    def reset(self) -> None:
        """Begin anew, with the first values of the text, or zeros, in new memory."""
        with self._lock:
            self._held.update(self._kinds.held({}, self._kinds.sizes(self._held)))

    def copy(self) -> Session:
        """Another session that goes on from here with arrays of its own."""
        with self._lock:
            return Session(self._kinds, {name: _copied(x) for name, x in self._held.items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to a safetensors file.

        Raises UsageError where it cannot be written, and for a name that does not end in `.safetensors`.
        """
        check_path("the arrays of a session are saved at a path", path)
        check_ending(path, ".safetensors")
        with self._lock:
            tensors = {name: _on_host(array) for name, array in self._held.items()}
            safetensors.write(path, tensors)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from the arrays of a file that `save` wrote, perhaps of other sizes.

        Raises ModelError (D0504) for one that is missing, CallError for one that does not fit.
        """
        loaded = self._kinds.held(saved_arrays(path, self._kinds.items), {})
        with self._lock:
            self._held.update(loaded)


class _Arrays(Mapping[str, Held]):
    """The arrays of a session by name: what is in them may be written, and none can be replaced."""

    def __init__(self, held: Mapping[str, Held]) -> None:
        self._held = held

    def __getitem__(self, name: str) -> Held:
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return repr(dict(self._held))

    def __setitem__(self, name: str, value: object) -> None:
        raise CallError(
            f"a session keeps its array {name}, which cannot be replaced by another",
            code="D0820",
            help=f"write into it, session.arrays[{name!r}][...] = x, or begin with it, "
            f"model.session({name}=x)",
        )


class _SessionEntry:
    """An entry point with the arrays of a session."""

    def __init__(
        self, point: EntryPoint, kinds: SessionArrays, held: dict[str, Held], lock: Lock
    ) -> None:
        inouts = point.entry.inouts
        self._point: Callable[..., object] = point
        self._name = point.name
        self._held = held
        self._lock = lock
        self._own = [item.name if item.name in inouts else None for item in point.inputs]
        self._named = {python_name(name): name for name in inouts}
        self._read = {
            python_name(item.name): item.name
            for item in point.inputs
            if item.name not in inouts and _is_held(item, kinds)
        }
        self._free = [python_name(item.name) for item in point.inputs if item.name not in inouts]
        self.__doc__ = point.doc or None
        self.__name__ = point.name

    @without_frames
    def __call__(
        self, /, *args: object, out: Out | None = None, arena: object = None, **named: object
    ) -> object:
        if not self._lock.acquire(blocking=False):
            raise CallError(
                f"{self._name}: another call changes the arrays of this session",
                code="D0821",
                help="make a session for each stream: model.session(), or session.copy()",
            )
        try:
            held = self._held
            if not named and len(args) == len(self._free):
                rest = iter(args)
                full = [next(rest) if name is None else held[name] for name in self._own]
                return self._point(*full, out=out, arena=arena)
            return self._point(**self._sorted(args, named), out=out, arena=arena)
        finally:
            self._lock.release()

    def _sorted(self, args: tuple[object, ...], named: Mapping[str, object]) -> dict[str, object]:
        """All arguments by name. Raises CallError (D0801) for too many, and for those that are held."""
        if len(args) > len(self._free):
            raise self._refuse(f"{len(args)} arguments for {', '.join(self._free) or 'none'}")
        given: dict[str, object] = dict(zip(self._free, args, strict=False))
        for name in named:
            if name in self._named:
                raise self._refuse(f"{name} belongs to the session")
            if name in given:
                raise self._refuse(f"{name} is given twice")
        own = {key: self._held[name] for key, name in self._named.items()}
        # What another entry point changes, and this one reads.
        read = {key: self._held[name] for key, name in self._read.items()}
        return {**read, **given, **named, **own}

    def _refuse(self, message: str) -> CallError:
        return CallError(f"{self._name}: {message}", code="D0801")


def _beginning(item: Input) -> str:
    """The first value of a parameter, as a message says it."""
    default = default_value(item)
    return "zeros" if default is None else str(default.bits.tolist())


def _is_held(item: Input, kinds: SessionArrays) -> bool:
    """Whether an input has the name and the type of an array of a session."""
    held = kinds.items.get(item.name)
    return held is not None and (held.dtype, held.shape) == (item.dtype, item.shape)


def saved_arrays(path: str | os.PathLike[str], items: Mapping[str, Input]) -> dict[str, object]:
    """Copies of the arrays of a file, which can be written.

    Raises ModelError (D0504) for a missing one, UsageError (D0902) for what is not a path.
    """
    check_path("a session is read from a path, and arrays are given by name", path)
    file = open_weights(path)
    return {name: _copied(file[name]) for name in items}


def _copied(array: Held) -> Held:
    if isinstance(array, Tensor):
        if array.device != "cpu":
            return array.to("cpu").to(array.device)
        return Tensor.from_bits(np.array(array.bits), array.dtype)
    return array.copy()


def _on_host(array: Held) -> Tensor:
    return array.to("cpu") if isinstance(array, Tensor) else Tensor(array)
