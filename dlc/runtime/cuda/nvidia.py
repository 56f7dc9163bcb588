"""NVIDIA's driver by cuda-python, with its refusals as errors.

cuda-python is imported when the first model for a GPU is loaded, and not before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Self, cast

from dlc.errors import CallError
from dlc.runtime.cuda.bindings import AnyNode, Bindings, KernelNode, SourceGraph, Words
from dlc.runtime.cuda.driver import ConditionKernels, Driver, Handle, Kernel, NoGpu
from dlc.runtime.cuda.pinned_pool import PinnedPool

_NON_BLOCKING = 1
"""A stream that does not wait for the one which other libraries use by default."""
_KEPT = (1 << 64) - 1
"""Bytes that a pool of memory keeps for later instead of giving them back: all."""
_FOR_ALL = 1
"""Memory of the host that is pinned for every GPU."""
_NAME_BYTES = 96
_ASSIGN_DEFAULT = 1
"""A condition has its first value whenever the graph is launched."""
MOST_BLOCKS = (1 << 31) - 1
"""Of one launch."""

OPENED: dict[int, Driver] = {}
"""The GPUs that somebody has asked for, by their numbers."""
_OPENING = threading.Lock()


def open_driver(device: int) -> Driver:
    """The GPU of that number, the same object for all who ask. Raises NoGpu."""
    with _OPENING:
        if device not in OPENED:
            OPENED[device] = _CudaDriver(device)
        return OPENED[device]


class _CudaDriver:
    def __init__(self, device: int) -> None:
        try:
            self._cuda = cast(Bindings, import_module("cuda.bindings.driver"))
        except ImportError:
            raise NoGpu(
                "an NVIDIA GPU and the package cuda-python, which is not installed "
                "(pip install 'dlc[cuda]')"
            ) from None
        count = self._count()
        if not count:
            raise NoGpu("an NVIDIA GPU with its driver, and there is none here")
        if device >= count:
            raise NoGpu(f"GPU number {device}, and the last one here is number {count - 1}")
        self.number = device
        self.free_blocks: dict[int, list[int]] = {}
        self.pinned_pool = PinnedPool(self.pin, self.unpin)
        self.supports_conditions = True
        self.condition_kernels: ConditionKernels | None = None
        (self._device,) = self._do("cuDeviceGet", device)
        (self._context,) = self._do("cuDevicePrimaryCtxRetain", self._device)
        (name,) = self._do("cuDeviceGetName", _NAME_BYTES, self._device)
        self.name = cast(bytes, name).rstrip(b"\0").decode(errors="replace")
        major, minor = (
            self._attribute(f"COMPUTE_CAPABILITY_{which}") for which in ("MAJOR", "MINOR")
        )
        self.capability = major, minor
        self.shared_stream = self.create_stream()
        self._has_pool = self._keep_pool()

    def _count(self) -> int:
        """How many GPUs there are, none where there is no driver either."""
        try:
            self._do("cuInit", 0)
            (count,) = self._do("cuDeviceGetCount")
        except (CallError, RuntimeError):  # the latter where there is no library of the driver
            return 0
        return cast(int, count)

    def _attribute(self, name: str) -> int:
        which = self._named("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{name}")
        (found,) = self._do("cuDeviceGetAttribute", which, self._device)
        assert isinstance(found, int)
        return found

    def _named(self, kind: str, name: str) -> object:
        """A number of the driver's interface by its name."""
        found: object = getattr(getattr(self._cuda, kind), name)
        return found

    def _keep_pool(self) -> bool:
        """Whether the device has a pool of memory.

        What is given back stays in it: the next call that needs as much has it at once.
        """
        if not self._attribute("MEMORY_POOLS_SUPPORTED"):
            return False
        (pool,) = self._here("cuDeviceGetDefaultMemPool", self._device)
        threshold = self._named("CUmemPool_attribute", "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD")
        self._here("cuMemPoolSetAttribute", pool, threshold, self._cuda.cuuint64_t(_KEPT))
        return True

    def _do(self, name: str, *arguments: object) -> tuple[object, ...]:
        """Call a function of the driver. Raises CallError (D0818) with its own words."""
        status, *results = getattr(self._cuda, name)(*arguments)
        if int(cast(int, status)):
            _, text = self._cuda.cuGetErrorString(status)
            said = text.decode() if isinstance(text, bytes) else str(status)
            code = "D0613" if "OUT_OF_MEMORY" in str(status) else "D0818"
            raise CallError(f"the GPU's driver refuses {name}: {said}", code=code)
        return tuple(results)

    def _here(self, name: str, *arguments: object) -> tuple[object, ...]:
        """The same where the thread may have another GPU at the moment, or none."""
        with self:
            return self._do(name, *arguments)

    def _give_back(self, name: str, *arguments: object) -> None:
        """The same for what ends something; when Python ends, the end of the process does all of that."""
        if not sys.is_finalizing():
            self._here(name, *arguments)

    def __enter__(self) -> Self:
        self._do("cuCtxPushCurrent", self._context)
        return self

    def __exit__(self, *error: object) -> None:
        # What it says of work that failed before was said where that was waited for.
        self._cuda.cuCtxPopCurrent()

    # Memory ---------------------------------------------------------------------------------------

    def allocate(self, count: int) -> int:
        with self:
            if not self._has_pool:
                (found,) = self._do("cuMemAlloc", max(count, 1))
            else:
                (found,) = self._do("cuMemAllocAsync", max(count, 1), self.shared_stream)
                self.synchronize(self.shared_stream)  # every stream may use it from now on
        return int(cast(int, found))

    def free(self, address: int) -> None:
        if self._has_pool:
            self._give_back("cuMemFreeAsync", address, self.shared_stream)
        else:
            self._give_back("cuMemFree", address)

    def pin(self, count: int) -> int:
        (found,) = self._here("cuMemHostAlloc", max(count, 1), _FOR_ALL)
        return int(cast(int, found))

    def unpin(self, address: int) -> None:
        self._give_back("cuMemFreeHost", address)

    def is_pinned(self, address: int, count: int) -> bool:
        return all(self._is_pinned(place) for place in {address, address + max(count, 1) - 1})

    def _is_pinned(self, place: int) -> bool:
        """Whether a byte is pinned; memory that the driver does not know is not, and no error."""
        which = self._named("CUpointer_attribute", "CU_POINTER_ATTRIBUTE_MEMORY_TYPE")
        status, found = self._cuda.cuPointerGetAttribute(which, place)
        if int(cast(int, status)):
            return False
        host = self._named("CUmemorytype", "CU_MEMORYTYPE_HOST")
        return int(cast(int, found)) == int(cast(int, host))

    def upload(self, address: int, source: int, count: int, stream: int) -> None:
        if count:
            self._do("cuMemcpyHtoDAsync", address, source, count, stream)

    def download(self, target: int, address: int, count: int, stream: int) -> None:
        if count:
            self._do("cuMemcpyDtoHAsync", target, address, count, stream)

    def copy(self, target: int, source: int, count: int, stream: int) -> None:
        if count:
            self._do("cuMemcpyDtoDAsync", target, source, count, stream)

    def memset_zero(self, address: int, count: int, stream: int) -> None:
        if count:
            self._do("cuMemsetD8Async", address, 0, count, stream)

    # Order ----------------------------------------------------------------------------------------

    def create_stream(self) -> int:
        (found,) = self._here("cuStreamCreate", _NON_BLOCKING)
        return int(cast(int, found))

    def destroy_stream(self, stream: int) -> None:
        self._give_back("cuStreamDestroy", stream)

    def synchronize(self, stream: int) -> None:
        self._do("cuStreamSynchronize", stream)

    def synchronize_all(self) -> None:
        self._here("cuCtxSynchronize")

    def create_event(self) -> Handle:
        (found,) = self._here("cuEventCreate", 0)
        return found

    def destroy_event(self, event: Handle) -> None:
        self._give_back("cuEventDestroy", event)

    def record(self, event: Handle, stream: int) -> None:
        self._do("cuEventRecord", event, stream)

    def stream_wait_event(self, stream: int, event: Handle) -> None:
        self._do("cuStreamWaitEvent", stream, event, 0)

    def synchronize_event(self, event: Handle) -> None:
        self._do("cuEventSynchronize", event)

    def elapsed_ms(self, begin: Handle, end: Handle) -> float:
        (found,) = self._do("cuEventElapsedTime", begin, end)
        assert isinstance(found, float)
        return found

    # Kernels --------------------------------------------------------------------------------------

    def load_module(self, image: bytes) -> Handle:
        (module,) = self._here("cuModuleLoadData", image)
        return module

    def unload_module(self, module: Handle) -> None:
        self._give_back("cuModuleUnload", module)

    def get_function(self, module: Handle, name: str) -> Handle:
        (found,) = self._here("cuModuleGetFunction", module, name.encode())
        return found

    def launch(self, kernel: Kernel, tiles: int, words: Sequence[int], stream: int) -> None:
        given = Words(words)
        grid, block = _grid(tiles), (kernel.threads, 1, 1)
        self._do("cuLaunchKernel", kernel.function, *grid, *block, 0, stream, given.address, 0)

    # Graphs ---------------------------------------------------------------------------------------

    def create_graph(self) -> Handle:
        (found,) = self._do("cuGraphCreate", 0)
        return SourceGraph(found)

    def add_kernel_node(
        self,
        graph: Handle,
        kernel: Kernel,
        tiles: int,
        words: Sequence[int],
        after: Sequence[Handle],
    ) -> Handle:
        given = Words(words)
        parameters = self._parameters(kernel, tiles, given)
        source = cast(SourceGraph, graph).source
        (node,) = self._do("cuGraphAddKernelNode", source, list(after), len(after), parameters)
        return node

    def add_empty_node(self, graph: Handle, after: Sequence[Handle]) -> Handle:
        source = cast(SourceGraph, graph).source
        (node,) = self._do("cuGraphAddEmptyNode", source, list(after), len(after))
        return node

    def create_condition(self, graph: Handle) -> int:
        source = cast(SourceGraph, graph).source
        (found,) = self._newer(
            "cuGraphConditionalHandleCreate", source, self._context, 0, _ASSIGN_DEFAULT
        )
        return int(cast(int, found))

    def add_conditional_node(
        self, graph: Handle, condition: int, again: bool, after: Sequence[Handle]
    ) -> tuple[Handle, Handle]:
        parameters = cast(AnyNode, self._cuda.CUgraphNodeParams())
        parameters.type = self._named("CUgraphNodeType", "CU_GRAPH_NODE_TYPE_CONDITIONAL")
        wanted = parameters.conditional
        wanted.handle = self._cuda.CUgraphConditionalHandle(condition)
        kind = "CU_GRAPH_COND_TYPE_WHILE" if again else "CU_GRAPH_COND_TYPE_IF"
        wanted.type = self._named("CUgraphConditionalNodeType", kind)
        wanted.size, wanted.ctx = 1, self._context
        # The function that takes data of edges has one name in cuda-python for CUDA 12, another for 13.
        name = "cuGraphAddNode_v2" if hasattr(self._cuda, "cuGraphAddNode_v2") else "cuGraphAddNode"
        source, edges = (
            cast(SourceGraph, graph).source,
            [self._cuda.CUgraphEdgeData() for _ in after],
        )
        (node,) = self._newer(name, source, list(after), edges, len(after), parameters)
        return node, SourceGraph(wanted.phGraph_out[0])

    def _newer(self, name: str, *arguments: object) -> tuple[object, ...]:
        """Call a function that drivers may not have. Raises CallError (D0818) then, too."""
        try:
            return self._do(name, *arguments)
        except RuntimeError:  # cuda-python has not found it in the driver's library
            raise CallError(f"the GPU's driver has no {name}", code="D0818") from None

    def instantiate(self, graph: Handle) -> None:
        made = cast(SourceGraph, graph)
        (made.executable,) = self._do("cuGraphInstantiate", made.source, 0)

    def launch_graph(self, graph: Handle, stream: int) -> None:
        self._do("cuGraphLaunch", cast(SourceGraph, graph).executable, stream)

    def set_kernel_arguments(
        self, graph: Handle, node: Handle, kernel: Kernel, tiles: int, words: Sequence[int]
    ) -> None:
        given = Words(words)
        parameters = self._parameters(kernel, tiles, given)
        executable = cast(SourceGraph, graph).executable
        self._do("cuGraphExecKernelNodeSetParams", executable, node, parameters)

    def _parameters(self, kernel: Kernel, tiles: int, words: Words) -> KernelNode:
        """What a node of a graph launches; the words are read when it is made or changed."""
        found = cast(KernelNode, self._cuda.CUDA_KERNEL_NODE_PARAMS())
        found.func = kernel.function
        found.gridDimX, found.gridDimY, found.gridDimZ = _grid(tiles)
        found.blockDimX, found.blockDimY, found.blockDimZ = kernel.threads, 1, 1
        found.kernelParams = words.address
        return found

    def destroy_graph(self, graph: Handle) -> None:
        made = cast(SourceGraph, graph)
        if made.executable is not None:
            self._give_back("cuGraphExecDestroy", made.executable)
        self._give_back("cuGraphDestroy", made.source)


def _grid(tiles: int) -> tuple[int, int, int]:
    """A block to each tile. Raises CallError (D0818) for more than there can be in one launch."""
    if tiles > MOST_BLOCKS:
        raise CallError(
            f"a kernel would be {tiles} blocks of threads, and a GPU takes {MOST_BLOCKS} at once",
            code="D0818",
        )
    return tiles, 1, 1
