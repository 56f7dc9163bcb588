"""What a network takes for collectives."""

from __future__ import annotations

import pytest

from dlc.target.network import HERE, Network, Sending, network_named

LINE = Network("line", message=1_000_000, byte=1000, add=0)


def test_a_rank_alone_sends_nothing() -> None:
    assert LINE.sending("MPI_Allreduce", 100, 1) == Sending(0, 0)


@pytest.mark.parametrize(
    ("function", "messages", "sent"),
    [
        ("MPI_Allreduce", 6, 2 * 700),
        ("MPI_Iallreduce", 6, 2 * 700),
        ("MPI_Reduce_scatter_block", 3, 700),
        ("MPI_Allgather", 3, 700),
        ("MPI_Alltoall", 3, 700),
        ("MPI_Bcast", 6, 2 * 700),
        ("MPI_Sendrecv", 1, 800),
    ],
)
def test_eight_ranks_send_as_the_algorithms_say(function: str, messages: int, sent: int) -> None:
    assert LINE.sending(function, 800, 8) == Sending(1000 * messages, sent)


def test_what_is_added_takes_time_too() -> None:
    adds = Network("adds", message=0, byte=0, add=1000)
    assert adds.sending("MPI_Allreduce", 800, 8).transfer == 700
    assert adds.sending("MPI_Allgather", 800, 8).transfer == 0


def test_a_line_is_named_by_its_rate_and_the_time_of_a_message() -> None:
    found = network_named("100Gbit,2.5us")
    assert found is not None
    assert (found.message, found.byte, found.beside) == (2_500_000, 89, True)
    assert network_named("here") is HERE
    assert [network_named(text) for text in ("25", "0Gbit", "25Tbit", "-1Gbit", "")] == [None] * 5
