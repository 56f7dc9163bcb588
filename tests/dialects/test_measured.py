"""Names of measured dims: each given once, in linear time."""

from collections.abc import Container

from dlc.dialects.measured import FreshNames


def test_names_that_are_taken_or_given_get_the_next_number() -> None:
    names = FreshNames({"n", "n_2"})
    assert [names.take("n") for _ in range(3)] == ["n_1", "n_3", "n_4"]
    assert names.take("m") == "m"
    assert names.take("n_1") == "n_1_1"
    assert names.given == {"n_1", "n_3", "n_4", "m", "n_1_1"}


class Counting(Container[str]):
    """Names of which none is taken; counts the questions."""

    def __init__(self) -> None:
        self.questions = 0

    def __contains__(self, name: object) -> bool:
        self.questions += 1
        return False


def test_equal_names_take_linear_time() -> None:
    taken = Counting()
    names = FreshNames(taken)
    given = [names.take("n") for _ in range(4000)]
    assert len(set(given)) == taken.questions == 4000
