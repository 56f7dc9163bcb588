"""How a text case is run: the same way as `dlc opt`."""

from __future__ import annotations

from dlc.driver.opt import optimise_text


def run_case(text: str, passes: str) -> str:
    """The IR text after the passes, such as `fuse{max_inputs=4},dce`; raises DlcError as `dlc opt` does."""
    return optimise_text(text, passes, file="case.dlir")
