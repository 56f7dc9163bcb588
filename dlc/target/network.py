"""What sending between the ranks of a mesh costs."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.target.table import cost


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """Costs of a collective among ranks, as measured between processes of one machine."""

    latency: int = cost(5_000_000, "ps", "a collective of no bytes")
    byte: int = cost(300, "ps/byte", "a byte that a rank sends and one that it receives")
    piece: int = cost(
        4 << 20, "bytes", "what is combined at once: less costs latency, more memory traffic"
    )

    @property
    def bucket(self) -> int:
        """The bytes from which on latency is less than a sixteenth of the time of a collective."""
        return 16 * self.latency // self.byte


USUAL_NETWORK = NetworkCosts()
"""The costs where nothing is known of the network."""
