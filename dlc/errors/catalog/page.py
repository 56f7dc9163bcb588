"""The form of one error page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """The page that `dlc explain CODE` prints. `wrong` and `right` are model texts or commands."""

    title: str
    why: str
    wrong: str = ""
    right: str = ""
    without: str = ""
    """Why no short program causes it, where `wrong` has none."""
