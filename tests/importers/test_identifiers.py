"""Names of other tools, of which a file may have thousands that are alike."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dlc.export.model_text.names import Names
from dlc.importers.identifiers import Identifiers


@pytest.mark.parametrize(
    "given",
    [Identifiers("x").of, Names().of, Names().numbered],
    ids=["imported", "exported", "numbered"],
)
def test_thousands_of_equal_names_are_told_apart_in_a_time_that_grows_with_them(
    given: Callable[[str], str],
) -> None:
    begun = time.process_time()
    assert len({given("node") for _ in range(20_000)}) == 20_000
    assert time.process_time() - begun < 2


def test_numbers_of_equal_names_leave_out_those_that_are_taken() -> None:
    for names in (Identifiers("x", taken=("node3",)), Names(("node3",))):
        assert [names.of("node") for _ in range(3)] == ["node", "node2", "node4"]
    numbered = Names(("node1",))
    assert [numbered.numbered("node"), numbered.of("node"), numbered.of("node")] == [
        "node2",
        "node",
        "node3",
    ]
