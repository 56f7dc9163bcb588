from collections.abc import Sequence

class MaxNLocator:
    def __init__(self, *, integer: bool, steps: Sequence[float]) -> None: ...
