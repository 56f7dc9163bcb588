from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

class SessionOptions:
    log_severity_level: int
    intra_op_num_threads: int
    inter_op_num_threads: int

class NodeArg:
    name: str
    type: str
    shape: list[int | str | None]

class InferenceSession:
    def __init__(
        self,
        path_or_bytes: str | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str] | None = None,
    ) -> None: ...
    def get_inputs(self) -> list[NodeArg]: ...
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[Any]]
    ) -> list[NDArray[Any]]: ...
