"""NVIDIA's driver as dlc calls it: with the arguments that cuda-python declares, in the order needed.

Nothing is done: each function notes that it was called and gives what a test says. What the driver
refuses is an error in its words.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from enum import Enum
from typing import Protocol, cast

import pytest

from dlc.errors import CallError
from dlc.runtime.cuda import nvidia
from dlc.runtime.cuda.driver import Driver, Kernel, NoGpu
from dlc.runtime.cuda.nvidia import MOST_BLOCKS, open_driver

bindings = pytest.importorskip("cuda.bindings.driver")

CONTEXT = bindings.CUcontext(99)
GIVEN: dict[str, tuple[object, ...]] = {
    "cuInit": (0,),
    "cuDeviceGetCount": (0, 1),
    "cuDeviceGet": (0, 0),
    "cuDevicePrimaryCtxRetain": (0, CONTEXT),
    "cuDeviceGetName": (0, b"NVIDIA H200\0\0"),
    "cuCtxPopCurrent": (0, CONTEXT),
    "cuDeviceGetDefaultMemPool": (0, "pool"),
    "cuMemPoolSetAttribute": (0,),
    "cuStreamCreate": (0, 77),
    "cuStreamSynchronize": (0,),
    "cuThreadExchangeStreamCaptureMode": (0, "as it was"),
    "cuMemAlloc": (0, 4096),
    "cuMemAllocAsync": (0, 8192),
    "cuGetErrorString": (0, b"it is used up"),
    "cuGraphCreate": (0, "graph"),
    "cuGraphAddKernelNode": (0, "node"),
    "cuGraphAddEmptyNode": (0, "empty"),
    "cuGraphInstantiate": (0, "executable"),
    "cuGraphConditionalHandleCreate": (0, bindings.CUgraphConditionalHandle(1 << 40)),
    "cuGraphAddNode": (0, "conditional"),
    "cuGraphAddNode_v2": (0, "conditional"),
    "cuEventCreate": (0, "event"),
    "cuEventElapsedTime": (0, 1.5),
    "cuDriverGetVersion": (0, 12080),
    "cuModuleLoadDataEx": (0, "module"),
    "cuModuleGetFunction": (0, "function"),
    "cuMemHostAlloc": (0, 512),
    "cuPointerGetAttribute": (0, 1),
}
"""What functions end with; those that are not here end with success and nothing else."""
WITHOUT_CONTEXT = ("cuInit", "cuDevice", "cuDriver", "cuCtx", "cuGetErrorString", "cuMemPool")
"""How the names of functions begin that are called where a thread may have no GPU."""
BODY = 0x1234
"""The graph of the body of a node."""
FIELDS = ("gridDimX", "blockDimX", "sharedMemBytes")
"""What a node of a graph is looked at for."""


def declared(name: str) -> int:
    """How many arguments a function of cuda-python takes."""
    signature = str(getattr(bindings, name).__doc__).splitlines()[0]
    inside = signature.partition("(")[2].rpartition(")")[0]
    depth = commas = 0
    for letter in inside:
        depth += (letter in "([") - (letter in ")]")
        commas += letter == "," and depth == 0
    return commas + 1 if inside else 0


class Bindings:
    """`cuda.bindings.driver`, whose functions only note their arguments."""

    lacks: tuple[str, ...] = ()
    """What the driver's library does not have."""
    is_older = hasattr(bindings, "cuGraphAddNode_v2")
    """Whether it is cuda-python for CUDA 12, where the function with data of edges has another name."""

    def __init__(self, pools: bool, **given: tuple[object, ...]) -> None:
        self.given = {**GIVEN, **given}
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        self.entered: list[object] = []
        """The contexts that were made that of the thread."""
        self.bodies = (ctypes.c_uint64 * 1)(BODY)
        self.attributes = {"MAJOR": 9, "MINOR": 0, "MEMORY_POOLS_SUPPORTED": int(pools)}

    def __getattr__(self, name: str) -> object:
        if name == "cuGraphAddNode_v2" and not self.is_older:
            raise AttributeError(name)
        real = getattr(bindings, name, None) or bindings.cuGraphAddNode
        if not name.startswith("cu") or isinstance(real, type):
            return real

        def function(*arguments: object) -> tuple[object, ...]:
            if name in self.lacks:
                raise RuntimeError(f'Function "{name}" not found')
            with_edges = name == "cuGraphAddNode_v2" or (
                name == "cuGraphAddNode" and not self.is_older
            )
            assert len(arguments) == (5 if with_edges else declared(name)), name
            self.calls.append((name, arguments))
            assert self.entered or name.startswith(WITHOUT_CONTEXT), name
            if name == "cuCtxPushCurrent":
                self.entered += arguments
            if name == "cuCtxPopCurrent":
                self.entered.pop()
            if name.startswith("cuGraphAddNode"):
                # The driver says where it has the graphs of the bodies, 16 bytes into the parameters.
                place = cast(Parameters, arguments[-1]).conditional.getPtr() + 16
                ctypes.c_uint64.from_address(place).value = ctypes.addressof(self.bodies)
            if name == "cuDeviceGetAttribute":
                which = cast(Enum, arguments[0]).name
                return 0, next(n for end, n in self.attributes.items() if which.endswith(end))
            return self.given.get(name, (0,))

        return function

    def arguments(self, name: str) -> Sequence[object]:
        """Those of the last call of a function."""
        return [given for called, given in self.calls if called == name][-1]

    @property
    def names(self) -> list[str]:
        """What was called, but for the changes of context and of what a capture allows."""
        changes = ("cuCtxP", "cuThreadExchange")
        return [name for name, _ in self.calls if not name.startswith(changes)]


class Parameters(Protocol):
    """`CUgraphNodeParams`."""

    type: object
    conditional: Parameters
    handle: int
    size: int
    ctx: int

    def getPtr(self) -> int: ...


class DriverFactory:
    """Makes drivers of noted functions."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.noted = Bindings(True)

    def __call__(self, *, pools: bool = True, **given: tuple[object, ...]) -> Driver:
        self.noted = Bindings(pools, **given)

        def imported(name: str) -> Bindings:
            assert name == "cuda.bindings.driver"
            return self.noted

        self._patch.setattr(nvidia, "import_module", imported)
        return open_driver(0)

    def entered(self, **given: tuple[object, ...]) -> Driver:
        """One that is that of this thread until the end of the test."""
        return self(pools=True, **given).__enter__()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> DriverFactory:
    monkeypatch.setattr(nvidia, "OPENED", {})
    return DriverFactory(monkeypatch)


def test_a_gpu_says_what_it_is(opened: DriverFactory) -> None:
    driver = opened()
    assert driver.capability == (9, 0)
    assert driver.name == "NVIDIA H200"
    assert driver.number == 0


def test_without_the_package_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(nvidia, "OPENED", {})
    monkeypatch.setattr(nvidia, "import_module", missing)
    with pytest.raises(NoGpu, match=r"cuda-python, .* \(pip install 'dlc\[cuda\]'\)"):
        open_driver(0)


def test_threads_that_ask_at_once_get_the_same_gpu(
    opened: DriverFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()
    monkeypatch.setattr(nvidia, "OPENED", {})
    found: list[Driver] = []

    def begin(flags: object) -> tuple[object, ...]:
        time.sleep(0.02)
        return (0,)

    vars(opened.noted)["cuInit"] = begin
    threads = [threading.Thread(target=lambda: found.append(open_driver(0))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all(driver is found[0] for driver in found)


def test_memory_comes_from_the_pool_where_there_is_one(opened: DriverFactory) -> None:
    driver = opened()
    assert driver.allocate(10) == 8192
    assert opened.noted.arguments("cuMemAllocAsync") == (10, 77)
    assert opened.noted.names[-1] == "cuStreamSynchronize", "before another stream uses it"
    driver.free(8192)
    assert opened.noted.arguments("cuMemFreeAsync") == (8192, 77)


def test_memory_is_the_drivers_where_there_is_no_pool(opened: DriverFactory) -> None:
    driver = opened(pools=False)
    assert driver.allocate(10) == 4096
    driver.free(4096)
    assert "cuMemPoolSetAttribute" not in opened.noted.names
    assert opened.noted.arguments("cuMemFree") == (4096,)


def test_pinned_memory_is_so_for_every_gpu(opened: DriverFactory) -> None:
    driver = opened()
    assert driver.pin(100) == 512
    assert opened.noted.arguments("cuMemHostAlloc") == (100, bindings.CU_MEMHOSTALLOC_PORTABLE)
    driver.unpin(512)
    assert opened.noted.arguments("cuMemFreeHost") == (512,)


@pytest.mark.parametrize(
    ("told", "pinned"),
    [
        ((0, bindings.CUmemorytype.CU_MEMORYTYPE_HOST), True),
        ((0, int(bindings.CUmemorytype.CU_MEMORYTYPE_HOST)), True),
        ((0, int(bindings.CUmemorytype.CU_MEMORYTYPE_UNIFIED)), False),
        ((bindings.CUresult.CUDA_ERROR_INVALID_VALUE, None), False),
    ],
)
def test_the_driver_says_which_memory_is_pinned(
    opened: DriverFactory, told: tuple[object, ...], pinned: bool
) -> None:
    driver = opened.entered(cuPointerGetAttribute=told)
    assert driver.is_pinned(4096, 10) is pinned
    asked = [given for name, given in opened.noted.calls if name == "cuPointerGetAttribute"]
    assert {place for _, place in asked} <= {4096, 4105}
    assert len(asked) == (2 if pinned else 1), "its first byte and its last one"


def test_nothing_is_given_back_when_python_ends(
    opened: DriverFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = opened()
    monkeypatch.setattr(nvidia.sys, "is_finalizing", lambda: True)
    before = len(opened.noted.calls)
    driver.free(1)
    driver.unpin(2)
    driver.destroy_stream(3)
    driver.destroy_event(4)
    driver.unload_module(5)
    assert len(opened.noted.calls) == before


def test_a_refusal_has_the_words_of_the_driver(opened: DriverFactory) -> None:
    driver = opened(cuMemAllocAsync=(700,))
    with pytest.raises(CallError, match=r"D0818.*refuses cuMemAllocAsync: it is used up"):
        driver.allocate(10)


def test_an_error_that_ends_all_work_of_the_process_says_so(opened: DriverFactory) -> None:
    driver = opened.entered(cuStreamSynchronize=(700,), cuLaunchKernel=(1,))
    with pytest.raises(CallError, match="it is used up; this process cannot use the GPU any more"):
        driver.synchronize(77)
    with pytest.raises(CallError, match=r"it is used up$"):
        driver.launch(Kernel("function", 64), 5, [], 77)


@pytest.mark.parametrize(("version", "has"), [(12020, False), (12040, True), (13000, True)])
def test_the_version_of_the_driver_says_whether_graphs_have_conditions(
    opened: DriverFactory, version: int, has: bool
) -> None:
    assert opened(cuDriverGetVersion=(0, version)).supports_conditions is has


def test_a_device_that_is_full_is_no_fault_of_it(opened: DriverFactory) -> None:
    driver = opened(cuMemAllocAsync=(bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY,))
    with pytest.raises(CallError, match="D0613"):
        driver.allocate(10)


def test_a_machine_without_devices_has_none(opened: DriverFactory) -> None:
    with pytest.raises(NoGpu, match="an NVIDIA GPU with its driver, and there is none here"):
        opened(cuDeviceGetCount=(0, 0))


def test_a_driver_that_does_not_begin_is_none(opened: DriverFactory) -> None:
    with pytest.raises(NoGpu, match="an NVIDIA GPU with its driver"):
        opened(cuInit=(100,))


def test_a_gpu_is_that_of_a_thread_for_a_while(opened: DriverFactory) -> None:
    driver = opened()
    noted = opened.noted
    noted.entered.append("that of another library")
    with driver:
        driver.free(8192)
        with driver:
            assert noted.entered[1:] == [CONTEXT, CONTEXT]
        assert noted.entered[1:] == [CONTEXT]
    assert noted.entered == ["that of another library"]
    assert noted.arguments("cuCtxPopCurrent") == ()


def test_a_gpu_of_a_number_that_is_not_there_is_none(opened: DriverFactory) -> None:
    opened()
    with pytest.raises(NoGpu, match="GPU number 3, and the last one here is number 0"):
        open_driver(3)


def test_a_kernel_gets_the_addresses_of_its_words(opened: DriverFactory) -> None:
    driver = opened.entered()
    words: list[int] = []

    def launched(address: int, count: int) -> None:
        places = (ctypes.c_void_p * count).from_address(address)
        words.extend(ctypes.c_int64.from_address(place or 0).value for place in places)

    real = opened.noted.__getattr__("cuLaunchKernel")

    def reading(*arguments: object) -> tuple[object, ...]:
        launched(cast(int, arguments[9]), 3)
        return cast("tuple[object, ...]", real(*arguments))  # pyright: ignore[reportCallIssue]

    vars(opened.noted)["cuLaunchKernel"] = reading
    driver.launch(Kernel("function", 64), 5, [7, -1, 1 << 40], 77)
    assert words == [7, -1, 1 << 40]
    arguments = opened.noted.arguments("cuLaunchKernel")
    assert arguments[:9] == ("function", 5, 1, 1, 64, 1, 1, 0, 77)
    driver.launch(Kernel("function", 64, 70000), 5, [7, -1, 1 << 40], 77)
    assert opened.noted.arguments("cuLaunchKernel")[7] == 70000


def test_a_graph_is_made_launched_changed_and_freed(opened: DriverFactory) -> None:
    driver = opened.entered()
    kernel = Kernel(bindings.CUfunction(), 64)
    graph = driver.create_graph()
    first = driver.add_kernel_node(graph, kernel, 5, [7], [])
    noted = opened.noted
    source, before, count, parameters = noted.arguments("cuGraphAddKernelNode")
    assert (source, before, count) == ("graph", [], 0)
    assert [getattr(parameters, name) for name in FIELDS] == [5, 64, 0]
    joined = driver.add_empty_node(graph, [first])
    assert noted.arguments("cuGraphAddEmptyNode") == ("graph", ["node"], 1)
    driver.add_kernel_node(graph, kernel, 5, [7], [first, joined])
    assert noted.arguments("cuGraphAddKernelNode")[1:3] == (["node", "empty"], 2)
    driver.instantiate(graph)
    driver.launch_graph(graph, 77)
    driver.set_kernel_arguments(graph, first, kernel, 6, [8])
    assert noted.arguments("cuGraphLaunch") == ("executable", 77)
    executable, changed, parameters = noted.arguments("cuGraphExecKernelNodeSetParams")
    assert (executable, changed) == ("executable", "node")
    assert [getattr(parameters, name) for name in FIELDS] == [6, 64, 0]
    driver.destroy_graph(graph)
    # Nodes go by the names of those of the graph that was made, so it lives as long.
    assert noted.names[-2:] == ["cuGraphExecDestroy", "cuGraphDestroy"]


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_node_with_a_body_is_made(opened: DriverFactory, is_older: bool, again: bool) -> None:
    driver = opened.entered()
    noted = opened.noted
    noted.is_older = is_older
    graph = driver.create_graph()
    condition = driver.create_condition(graph)
    assert condition == 1 << 40
    source, context, first, flags = noted.arguments("cuGraphConditionalHandleCreate")
    assert (source, context, first, flags) == ("graph", CONTEXT, 0, 1)

    node, body = driver.add_conditional_node(graph, condition, again, ["node", "empty"])
    assert node == "conditional"
    name = "cuGraphAddNode_v2" if is_older else "cuGraphAddNode"
    source, before, edges, count, parameters = noted.arguments(name)
    assert (source, before, count) == ("graph", ["node", "empty"], 2)
    assert [type(edge) for edge in cast("list[object]", edges)] == [bindings.CUgraphEdgeData] * 2
    made = cast(Parameters, parameters)
    assert made.type == bindings.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    kinds = bindings.CUgraphConditionalNodeType
    wanted = kinds.CU_GRAPH_COND_TYPE_WHILE if again else kinds.CU_GRAPH_COND_TYPE_IF
    assert made.conditional.type == wanted
    numbers = (made.conditional.handle, made.conditional.size, made.conditional.ctx)
    assert [int(number) for number in numbers] == [1 << 40, 1, 99]

    driver.add_kernel_node(body, Kernel(bindings.CUfunction(), 1), 1, [7], [])
    assert int(cast(int, noted.arguments("cuGraphAddKernelNode")[0])) == BODY
    driver.instantiate(graph)
    assert noted.arguments("cuGraphInstantiate") == ("graph", 0)


def test_a_driver_without_conditions_refuses_them(opened: DriverFactory) -> None:
    driver = opened.entered()
    opened.noted.lacks = ("cuGraphConditionalHandleCreate",)
    graph = driver.create_graph()
    with pytest.raises(CallError, match=r"D0818.*has no cuGraphConditionalHandleCreate"):
        driver.create_condition(graph)
    opened.noted.lacks = ()
    opened.noted.given["cuGraphConditionalHandleCreate"] = (801, None)
    with pytest.raises(CallError, match=r"D0818.*refuses cuGraphConditionalHandleCreate"):
        driver.create_condition(graph)


def test_a_graph_that_was_not_completed_is_freed(opened: DriverFactory) -> None:
    driver = opened.entered(cuGraphInstantiate=(700,))
    graph = driver.create_graph()
    with pytest.raises(CallError, match="D0818"):
        driver.instantiate(graph)
    driver.destroy_graph(graph)
    assert opened.noted.arguments("cuGraphDestroy") == ("graph",)
    assert "cuGraphExecDestroy" not in opened.noted.names


def test_more_blocks_than_a_launch_takes_are_refused(opened: DriverFactory) -> None:
    driver = opened.entered()
    kernel, graph = Kernel(bindings.CUfunction(), 64), driver.create_graph()
    driver.launch(kernel, MOST_BLOCKS, [7], 77)
    with pytest.raises(CallError, match=r"D0818.*2147483648 blocks"):
        driver.launch(kernel, MOST_BLOCKS + 1, [7], 77)
    with pytest.raises(CallError, match=r"D0818.*2147483648 blocks"):
        driver.add_kernel_node(graph, kernel, MOST_BLOCKS + 1, [7], [])


def test_every_other_function_is_called_as_it_is_declared(opened: DriverFactory) -> None:
    driver = opened.entered()
    driver.unpin(driver.pin(100))
    stream = driver.create_stream()
    driver.upload(1, 2, 3, stream)
    driver.download(1, 2, 3, stream)
    driver.copy(1, 2, 3, stream)
    driver.memset_zero(1, 3, stream)
    event = driver.create_event()
    driver.record(event, stream)
    assert driver.elapsed_ms(event, event) == 1.5
    driver.destroy_event(event)
    driver.synchronize(stream)
    driver.synchronize_all()
    driver.destroy_stream(stream)
    module = driver.load_module(b"ptx\0")
    assert driver.get_function(module, "f") == "function"
    assert "cuFuncSetAttribute" not in opened.noted.names
    assert driver.get_function(module, "f", 70000) == "function"
    function, attribute, value = opened.noted.arguments("cuFuncSetAttribute")
    assert (function, cast(Enum, attribute).name, value) == (
        "function",
        "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        70000,
    )
    driver.unload_module(module)
    assert "cuMemcpyDtoDAsync" in opened.noted.names
