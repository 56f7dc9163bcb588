"""A network between the ranks of this machine that takes its own time and none of the processors'.

Between processes of one machine the processors copy, and what they copy they do not compute: nothing of
that can be hidden. Ranks of several machines send by a network beside them. `network.c` stands for it, by a
clock that counts what a rank computes: a collective is over when that network would have sent it, and what
is left of it when a rank needs the result, the rank waits. So other work on the machine does not matter.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.ranks import links
from dlc.runtime.ranks.entering import Entering
from dlc.runtime.ranks.links import MpiChannel, MpiLinks
from dlc.target.network import Network, network_named

SOURCE = Path(__file__).with_name("network.c")
NAME = "libnetwork.so"


class Counted(NamedTuple):
    """Milliseconds by its clock: all, those that it has sent, and those that this rank has waited."""

    spent: float
    sending: float
    waited: float


def build(folder: Path) -> Path:
    """The library in a folder, made by the compiler of this environment's MPI."""
    target = folder / NAME
    command = [
        str(Path(sys.executable).with_name("mpicc")),
        "-shared",
        "-fPIC",
        "-O2",
        "-Wall",
        "-Werror",
        str(SOURCE),
    ]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


class SlowNetwork:
    """From now on, the code of models that are loaded sends by such a network."""

    def __init__(self, library: str, name: str) -> None:
        """`name` is one that `dlc scale --network` takes."""
        network = network_named(name)
        assert isinstance(network, Network), name
        self._library = ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        self._now = self._library.network_now
        self._now.restype = ctypes.c_int64
        self._asked = 0
        self.began = 0
        self._set("message", network.message // 1000)
        self._set("byte", network.byte)
        own = MpiLinks.word

        def word(links: MpiLinks, symbol: str) -> int:
            function = getattr(self._library, f"network_{symbol}", None)
            if function is None:
                return own(links, symbol)
            return ctypes.cast(function, ctypes.c_void_p).value or 0

        setattr(MpiLinks, "word", word)  # noqa: B010 - types refuse to replace a method
        self._send_between_stages()

    def _send_between_stages(self) -> None:
        """Let values of the stages of a pipeline go by it; a call begins on all ranks at once.

        With each value goes when it arrives, counted from the beginning of the call.
        """
        library, begin, network = self._library, Entering.begin, self
        library.network_arrival.restype = ctypes.c_int64

        def begin_at_once(entering: Entering, what: str) -> None:
            with self._stopped():
                begin(entering, what)
            self.began = self._now()

        class Slow(MpiChannel):
            def send(self, target: int, tag: int, array: NDArray[Any]) -> None:
                arrival = library.network_arrival(ctypes.c_int64(array.nbytes)) - network.began
                with network._stopped():
                    MpiChannel.send(self, target, 2 * tag, array)
                    MpiChannel.send(self, target, 2 * tag + 1, np.array([arrival], np.int64))

            def receive(self, source: int, tag: int, array: NDArray[Any]) -> None:
                arrival = np.empty(1, np.int64)
                with network._stopped():
                    MpiChannel.receive(self, source, 2 * tag, array)
                    MpiChannel.receive(self, source, 2 * tag + 1, arrival)
                library.network_await(ctypes.c_int64(network.began + int(arrival[0])))

            def settle(self, ahead: int = 0) -> None:
                with network._stopped():
                    MpiChannel.settle(self, ahead)

        setattr(Entering, "begin", begin_at_once)  # noqa: B010
        setattr(links, "MpiChannel", Slow)  # noqa: B010

    @contextmanager
    def _stopped(self) -> Generator[None]:
        """While inside, the clock stands still."""
        self._library.network_stop()
        try:
            yield
        finally:
            self._library.network_go()

    @property
    def since_begin(self) -> float:
        """Milliseconds since the ranks began a call together."""
        return (self._now() - self.began) / 1e6

    def _set(self, name: str, value: int) -> None:
        ctypes.c_int64.in_dll(self._library, f"network_{name}").value = value

    def _get(self, name: str) -> int:
        return ctypes.c_int64.in_dll(self._library, f"network_{name}").value

    def counted(self) -> Counted:
        """The times since this was asked before."""
        now = self._now()
        counts = now - self._asked, self._get("sending"), self._get("waited")
        found = Counted(*[each / 1e6 for each in counts])
        self._asked = now
        self._set("sending", 0)
        self._set("waited", 0)
        return found
