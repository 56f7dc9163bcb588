"""The driver interface by cuda-python: CUDA's driver API, with its error codes as CallError.

cuda-python is only imported when the first model for a GPU is loaded.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Self, cast

from dlc.errors import CallError
from dlc.runtime.cuda.bindings import AnyNode, Bindings, KernelNode, SourceGraph, Words
from dlc.runtime.cuda.driver import ConditionKernels, Driver, Handle, Kernel, NoGpu
from dlc.runtime.cuda.memory_use import MemoryUse
from dlc.runtime.cuda.pinned_pool import PinnedPool

_NON_BLOCKING = 1
"""A stream that does not synchronize with the legacy default stream."""
_KEPT = (1 << 64) - 1
"""Release threshold of the memory pool, in bytes: never release."""
_PORTABLE = 1
"""Flag CU_MEMHOSTALLOC_PORTABLE: memory is pinned for every GPU."""
_NAME_BYTES = 96
_ASSIGN_DEFAULT = 1
"""Flag CU_GRAPH_COND_ASSIGN_DEFAULT: the condition gets its default at each launch of the graph."""
_WITH_CONDITIONS = 12040
"""The version of the driver API that has loops in graphs: CUDA 12.4."""
_JIT_LOG_BYTES = 1 << 14
"""The most bytes kept of what the driver says about code that it refuses."""
_LOST = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719})
"""Numbers of errors after which every call of the process ends with the same error: of CUresult, bits of
memory or of a link that cannot be corrected, an error that the GPU has contained, an illegal address, a
time limit, an assertion, a hardware stack error, an illegal instruction, a misaligned address, an invalid
address space, an invalid program counter, and a failed launch."""
_NO_DEVICE = 100
"""The driver's error where it finds no GPU."""
_NOT_INITIALIZED = 3
"""Its error in a process that has not called `cuInit`, such as a child by fork."""
MOST_BLOCKS = (1 << 31) - 1
"""The most blocks of one launch: the limit of gridDim.x."""

OPENED: dict[int, Driver] = {}
"""The GPUs in use, by ordinal."""
_OPENING = threading.Lock()


def open_driver(device: int) -> Driver:
    """The GPU of this ordinal, always the same object. Raises NoGpu."""
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
        self.number, self.count = device, count
        self.free_blocks: dict[int, list[int]] = {}
        self.retired: deque[object] = deque()
        self.captures = 0
        self._counting = threading.Lock()
        self.memory_use = MemoryUse()
        self.pinned_pool = PinnedPool(self.pin, self.unpin)
        (version,) = self._do("cuDriverGetVersion")
        self.supports_conditions = int(cast(int, version)) >= _WITH_CONDITIONS
        self.condition_refusal = ""
        self.condition_kernels: ConditionKernels | None = None
        (self._device,) = self._do("cuDeviceGet", device)
        (self._context,) = self._do("cuDevicePrimaryCtxRetain", self._device)
        (name,) = self._do("cuDeviceGetName", _NAME_BYTES, self._device)
        # What cuda-python returns behind the end of the name is not part of it.
        self.name = cast(bytes, name).partition(b"\0")[0].decode(errors="replace")
        major, minor = (
            self._attribute(f"COMPUTE_CAPABILITY_{which}") for which in ("MAJOR", "MINOR")
        )
        self.capability = major, minor
        self.shared_stream = self.create_stream()
        self._has_pool = self._keep_pool()

    def _count(self) -> int:
        """The number of GPUs; 0 without a driver. Raises NoGpu where the driver cannot use them."""
        try:
            (status,) = self._cuda.cuInit(0)
        except RuntimeError:  # cuda-python finds no driver
            return 0
        if int(cast(int, status)) == _NO_DEVICE:
            return 0
        if status:
            refused = self._refusal("cuInit", status).diagnostics[0].message
            raise NoGpu(f"an NVIDIA GPU with its driver, and {refused}")
        (count,) = self._do("cuDeviceGetCount")
        return cast(int, count)

    def _attribute(self, name: str) -> int:
        attribute = self._named("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{name}")
        (value,) = self._do("cuDeviceGetAttribute", attribute, self._device)
        assert isinstance(value, int)
        return value

    def _named(self, kind: str, name: str) -> object:
        """The constant of this name in an enumeration of the driver API."""
        constant: object = getattr(getattr(self._cuda, kind), name)
        return constant

    def _keep_pool(self) -> bool:
        """Let the device's memory pool keep freed memory for reuse; False if it has no pool."""
        if not self._attribute("MEMORY_POOLS_SUPPORTED"):
            return False
        (pool,) = self._do_in_context("cuDeviceGetDefaultMemPool", self._device)
        threshold = self._named("CUmemPool_attribute", "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD")
        self._do_in_context("cuMemPoolSetAttribute", pool, threshold, self._cuda.cuuint64_t(_KEPT))
        return True

    def _do(self, name: str, *arguments: object) -> tuple[object, ...]:
        """Call a function of the driver API. Raises CallError (D0818, or D0613 when out of memory)."""
        try:
            returned: tuple[object, ...] = getattr(self._cuda, name)(*arguments)
        except RuntimeError:  # cuda-python does not find it, or no driver at all
            raise CallError(f"the GPU's driver has no {name}", code="D0818") from None
        if returned[0]:  # a CUresult, which is an integer
            raise self._refusal(name, returned[0])
        return returned[1:]

    def _refusal(self, name: str, status: object, more: str = "") -> CallError:
        """The error for a status of a function; `more` is what else the driver says."""
        number = int(cast(int, status))
        _, text = self._cuda.cuGetErrorString(status)
        reason = text.decode() if isinstance(text, bytes) else f"error {number}"
        is_full = number == int(cast(int, self._named("CUresult", "CUDA_ERROR_OUT_OF_MEMORY")))
        if number in _LOST:
            reason += "; this process cannot use the GPU any more"
        elif number == _NOT_INITIALIZED:
            reason += "; a process that was forked from one that has used the GPU cannot use it"
        return CallError(
            f"the GPU's driver refuses {name}: {reason}{more}",
            code="D0613" if is_full else "D0818",
        )

    def _do_in_context(self, name: str, *arguments: object) -> tuple[object, ...]:
        """`_do`, with this GPU's context pushed: the thread may have another one, or none."""
        with self:
            return self._do(name, *arguments)

    def _give_back(self, name: str, *arguments: object) -> None:
        """`_do_in_context` for a function that frees something.

        Not at exit, when the process frees all. After an error that ends all work nothing can be freed.
        Python may free it while another library captures a stream, which must not end for that.
        """
        if not sys.is_finalizing():
            with suppress(CallError), self, self._unobserved():
                self._do(name, *arguments)

    def __enter__(self) -> Self:
        (status,) = self._cuda.cuCtxPushCurrent(self._context)
        if status:
            raise self._refusal("cuCtxPushCurrent", status)
        return self

    def __exit__(self, *error: object) -> None:
        # Errors of earlier asynchronous work were raised where it was synchronized.
        self._cuda.cuCtxPopCurrent()

    # Memory ---------------------------------------------------------------------------------------

    def allocate(self, count: int) -> int:
        with self:
            if not self._has_pool:
                (address,) = self._do("cuMemAlloc", max(count, 1))
            else:
                (address,) = self._do("cuMemAllocAsync", max(count, 1), self.shared_stream)
                self.synchronize(self.shared_stream)  # then every stream may use it
        return int(cast(int, address))

    def free(self, address: int) -> None:
        if self._has_pool:
            self._give_back("cuMemFreeAsync", address, self.shared_stream)
        else:
            self._give_back("cuMemFree", address)

    def pin(self, count: int) -> int:
        (address,) = self._do_in_context("cuMemHostAlloc", max(count, 1), _PORTABLE)
        return int(cast(int, address))

    def unpin(self, address: int) -> None:
        self._give_back("cuMemFreeHost", address)

    def is_pinned(self, address: int, count: int) -> bool:
        return all(self._is_pinned_byte(byte) for byte in {address, address + max(count, 1) - 1})

    def _is_pinned_byte(self, address: int) -> bool:
        """Whether a byte is pinned; the driver returns an error for memory that it does not know."""
        attribute = self._named("CUpointer_attribute", "CU_POINTER_ATTRIBUTE_MEMORY_TYPE")
        status, kind = self._cuda.cuPointerGetAttribute(attribute, address)
        if int(cast(int, status)):
            return False
        host = self._named("CUmemorytype", "CU_MEMORYTYPE_HOST")
        return int(cast(int, kind)) == int(cast(int, host))

    def upload(self, address: int, source: int, count: int, stream: int) -> None:
        if count:
            (status,) = self._cuda.cuMemcpyHtoDAsync(address, source, count, stream)
            if status:
                raise self._refusal("cuMemcpyHtoDAsync", status)

    def download(self, target: int, address: int, count: int, stream: int) -> None:
        if count:
            (status,) = self._cuda.cuMemcpyDtoHAsync(target, address, count, stream)
            if status:
                raise self._refusal("cuMemcpyDtoHAsync", status)

    def copy(self, target: int, source: int, count: int, stream: int) -> None:
        if count:
            self._do("cuMemcpyDtoDAsync", target, source, count, stream)

    def memset_zero(self, address: int, count: int, stream: int) -> None:
        if count:
            self._do("cuMemsetD8Async", address, 0, count, stream)

    # Streams and events ---------------------------------------------------------------------------

    def create_stream(self) -> int:
        (stream,) = self._do_in_context("cuStreamCreate", _NON_BLOCKING)
        return int(cast(int, stream))

    def destroy_stream(self, stream: int) -> None:
        self._give_back("cuStreamDestroy", stream)

    def synchronize(self, stream: int) -> None:
        (status,) = self._cuda.cuStreamSynchronize(stream)
        if status:
            raise self._refusal("cuStreamSynchronize", status)

    def synchronize_all(self) -> None:
        self._do_in_context("cuCtxSynchronize")

    def is_capturing(self, stream: int) -> bool:
        (status,) = self._do("cuStreamIsCapturing", stream)
        return bool(int(cast(int, status)))

    @contextmanager
    def allowing_allocations(self) -> Generator[None]:
        with self._counting:
            self.captures += 1
        try:
            with self._unobserved():
                yield
        finally:
            with self._counting:
                self.captures -= 1

    @contextmanager
    def _unobserved(self) -> Generator[None]:
        """Calls that no capture depends on, so that none of them ends one."""
        relaxed = self._named("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_RELAXED")
        (before,) = self._do("cuThreadExchangeStreamCaptureMode", relaxed)
        try:
            yield
        finally:
            self._do("cuThreadExchangeStreamCaptureMode", before)

    def create_event(self) -> Handle:
        (event,) = self._do_in_context("cuEventCreate", 0)
        return event

    def destroy_event(self, event: Handle) -> None:
        self._give_back("cuEventDestroy", event)

    def record(self, event: Handle, stream: int) -> None:
        self._do("cuEventRecord", event, stream)

    def stream_wait_event(self, stream: int, event: Handle) -> None:
        self._do("cuStreamWaitEvent", stream, event, 0)

    def synchronize_event(self, event: Handle) -> None:
        self._do("cuEventSynchronize", event)

    def elapsed_ms(self, begin: Handle, end: Handle) -> float:
        (milliseconds,) = self._do("cuEventElapsedTime", begin, end)
        assert isinstance(milliseconds, float)
        return milliseconds

    # Kernels --------------------------------------------------------------------------------------

    def load_module(self, image: bytes) -> Handle:
        log = bytearray(_JIT_LOG_BYTES)
        options = {"CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": len(log), "CU_JIT_ERROR_LOG_BUFFER": log}
        names = [self._named("CUjit_option", name) for name in options]
        with self:
            status, module = self._cuda.cuModuleLoadDataEx(
                image, len(options), names, list(options.values())
            )
        if int(cast(int, status)):
            said = log.partition(b"\0")[0].decode(errors="replace").strip()
            raise self._refusal("cuModuleLoadDataEx", status, f"\n{said}" if said else "")
        return module

    def unload_module(self, module: Handle) -> None:
        self._give_back("cuModuleUnload", module)

    def get_function(self, module: Handle, name: str, shared: int = 0) -> Handle:
        (function,) = self._do_in_context("cuModuleGetFunction", module, name.encode())
        if shared:
            most = self._named(
                "CUfunction_attribute", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
            )
            self._do_in_context("cuFuncSetAttribute", function, most, shared)
        return function

    def launch(self, kernel: Kernel, tiles: int, words: Sequence[int], stream: int) -> None:
        arguments = Words(words)
        grid, block = _grid(tiles), (kernel.threads, 1, 1)
        where = kernel.shared, stream
        self._do("cuLaunchKernel", kernel.function, *grid, *block, *where, arguments.address, 0)

    # Graphs ---------------------------------------------------------------------------------------

    def create_graph(self) -> Handle:
        (graph,) = self._do("cuGraphCreate", 0)
        return SourceGraph(graph)

    def add_kernel_node(
        self,
        graph: Handle,
        kernel: Kernel,
        tiles: int,
        words: Sequence[int],
        after: Sequence[Handle],
    ) -> Handle:
        arguments = Words(words)
        parameters = self._parameters(kernel, tiles, arguments)
        source = cast(SourceGraph, graph).source
        (node,) = self._do("cuGraphAddKernelNode", source, list(after), len(after), parameters)
        return node

    def add_empty_node(self, graph: Handle, after: Sequence[Handle]) -> Handle:
        source = cast(SourceGraph, graph).source
        (node,) = self._do("cuGraphAddEmptyNode", source, list(after), len(after))
        return node

    def add_event_node(self, graph: Handle, event: Handle, after: Sequence[Handle]) -> Handle:
        source = cast(SourceGraph, graph).source
        (node,) = self._do("cuGraphAddEventRecordNode", source, list(after), len(after), event)
        return node

    def create_condition(self, graph: Handle) -> int:
        source = cast(SourceGraph, graph).source
        (condition,) = self._do(
            "cuGraphConditionalHandleCreate", source, self._context, 0, _ASSIGN_DEFAULT
        )
        return int(cast(int, condition))

    def add_conditional_node(
        self, graph: Handle, condition: int, again: bool, after: Sequence[Handle]
    ) -> tuple[Handle, Handle]:
        parameters = cast(AnyNode, self._cuda.CUgraphNodeParams())
        parameters.type = self._named("CUgraphNodeType", "CU_GRAPH_NODE_TYPE_CONDITIONAL")
        conditional = parameters.conditional
        conditional.handle = self._cuda.CUgraphConditionalHandle(condition)
        kind = "CU_GRAPH_COND_TYPE_WHILE" if again else "CU_GRAPH_COND_TYPE_IF"
        conditional.type = self._named("CUgraphConditionalNodeType", kind)
        conditional.size, conditional.ctx = 1, self._context
        # cuda-python for CUDA 12 and 13 name the function with edge data differently.
        name = "cuGraphAddNode_v2" if hasattr(self._cuda, "cuGraphAddNode_v2") else "cuGraphAddNode"
        source, edges = (
            cast(SourceGraph, graph).source,
            [self._cuda.CUgraphEdgeData() for _ in after],
        )
        (node,) = self._do(name, source, list(after), edges, len(after), parameters)
        return node, SourceGraph(conditional.phGraph_out[0])

    def instantiate(self, graph: Handle) -> None:
        source_graph = cast(SourceGraph, graph)
        (source_graph.executable,) = self._do("cuGraphInstantiate", source_graph.source, 0)

    def launch_graph(self, graph: Handle, stream: int) -> None:
        source: SourceGraph = graph  # pyright: ignore[reportAssignmentType] - made here
        (status,) = self._cuda.cuGraphLaunch(source.executable, stream)
        if status:
            raise self._refusal("cuGraphLaunch", status)

    def set_kernel_arguments(
        self, graph: Handle, node: Handle, kernel: Kernel, tiles: int, words: Sequence[int]
    ) -> None:
        arguments = Words(words)
        parameters = self._parameters(kernel, tiles, arguments)
        executable = cast(SourceGraph, graph).executable
        self._do("cuGraphExecKernelNodeSetParams", executable, node, parameters)

    def _parameters(self, kernel: Kernel, tiles: int, words: Words) -> KernelNode:
        """The launch parameters of a kernel node; the words are read when it is added or updated."""
        parameters = cast(KernelNode, self._cuda.CUDA_KERNEL_NODE_PARAMS())
        parameters.func = kernel.function
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = _grid(tiles)
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = kernel.threads, 1, 1
        parameters.sharedMemBytes = kernel.shared
        parameters.kernelParams = words.address
        return parameters

    def destroy_graph(self, graph: Handle) -> None:
        source_graph = cast(SourceGraph, graph)
        if source_graph.executable is not None:
            self._give_back("cuGraphExecDestroy", source_graph.executable)
        self._give_back("cuGraphDestroy", source_graph.source)


def _grid(tiles: int) -> tuple[int, int, int]:
    """A grid with a block for each tile. Raises CallError (D0818) for too many blocks."""
    if tiles > MOST_BLOCKS:
        raise CallError(
            f"a kernel would be {tiles} blocks of threads, and a GPU takes {MOST_BLOCKS} at once",
            code="D0818",
        )
    return tiles, 1, 1
