"""Costs of sending between the ranks of a mesh."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from dlc.target.table import cost


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """Costs of a collective among ranks, as measured between processes of one machine."""

    latency: int = cost(5_000_000, "ps", "a collective of no bytes")
    byte: int = cost(300, "ps/byte", "a byte that a rank sends and one that it receives")
    piece: int = cost(
        4 << 20, "bytes", "what is combined at once: less costs latency, more memory traffic"
    )

    call: int = cost(
        1_000_000, "ps", "a call of MPI that begins something, or tests what is under way"
    )
    poll: int = cost(100_000_000, "ps", "the work after which what is under way is tested")

    @property
    def bucket(self) -> int:
        """The bytes from which on latency is less than a sixteenth of the time of a collective."""
        return 16 * self.latency // self.byte


USUAL_NETWORK = NetworkCosts()
"""The costs where nothing is known of the network."""


class Sending(NamedTuple):
    """The nanoseconds of a collective: waiting for messages to arrive, and sending bytes."""

    latency: float
    transfer: float

    @property
    def total(self) -> float:
        """Nanoseconds of both."""
        return self.latency + self.transfer


@dataclass(frozen=True, slots=True)
class Network:
    """A network by which ranks send, for predictions (`dlc scale`).

    `beside` says whether it sends while processors compute; between processes of one machine they copy.
    """

    name: str
    message: int = cost(2_500_000, "ps", "a message of no bytes, from one rank to another")
    byte: int = cost(300, "ps/byte", "a byte that a rank sends")
    add: int = cost(100, "ps/byte", "a byte that a rank adds to its own")
    beside: bool = False

    def sending(self, function: str, bytes: float, ranks: int) -> Sending:
        """The time of a collective among ranks, by the name of the function of MPI.

        `bytes` are those of the whole array, of which a gather brings a part from each rank; of an
        all-to-all, a broadcast and a message those that a rank has. Messages and bytes of the algorithms
        for long arrays (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
        Operations in MPICH", 2005).
        """
        if ranks < 2:
            return Sending(0, 0)
        steps, sent = (ranks - 1).bit_length(), bytes * (ranks - 1) / ranks
        match function:
            case "MPI_Allreduce" | "MPI_Iallreduce":
                return self._of(2 * steps, 2 * sent, added=sent)
            case "MPI_Reduce_scatter_block":
                return self._of(steps, sent, added=sent)
            case "MPI_Allgather" | "MPI_Alltoall":
                return self._of(steps, sent)
            case "MPI_Bcast":
                return self._of(2 * steps, 2 * sent)
            case _:
                return self._of(1, bytes)

    def _of(self, messages: int, sent: float, added: float = 0) -> Sending:
        return Sending(messages * self.message / 1000, (sent * self.byte + added * self.add) / 1000)


HERE = Network("here")
"""Between processes of one machine."""

ETHERNET = 25_000_000
"""Picoseconds of a message by MPI over TCP, with the switch between two machines."""
USED = 0.9
"""The part of a line's rate that is left for the bytes of arrays."""
_LINE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([MG])bit(?:,([0-9]{1,6}(?:\.[0-9]{1,3})?)us)?")


def network_named(name: str) -> Network | None:
    """`here`, or a line like `25Gbit` or `25Gbit,5us`, with the time of a message; None for other texts.

    >>> network_named("25Gbit,5us")
    Network(name='25Gbit,5us', message=5000000, byte=356, add=100, beside=True)
    """
    if name == HERE.name:
        return HERE
    match = _LINE.fullmatch(name)
    if match is None or float(match[1]) == 0:
        return None
    bits_per_second = float(match[1]) * (1e9 if match[2] == "G" else 1e6)
    message = ETHERNET if match[3] is None else round(float(match[3]) * 1e6)
    return Network(name, message, round(8e12 / (USED * bits_per_second)), beside=True)
