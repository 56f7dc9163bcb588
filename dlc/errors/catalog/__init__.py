"""The page behind each error code: what is wrong, a text that shows it, and the corrected text.

Codes go by subject, one file each: D01 `syntax`, D02 `names` (and modules), D03 `types` (and shapes),
D04 `control` (control flow, derivatives), D05 `weights` (and data), D06 `artifact`, D07 `unsupported`,
D08 `call` (running), D09 `usage` (command line, internal failures).
"""

from dlc.errors.catalog import (
    artifact,
    call,
    control,
    names,
    syntax,
    types,
    unsupported,
    usage,
    weights,
)
from dlc.errors.catalog.page import Page

__all__ = ["PAGES", "Page"]

_SUBJECTS: dict[str, Page] = {
    **syntax.PAGES,
    **names.PAGES,
    **types.PAGES,
    **control.PAGES,
    **weights.PAGES,
    **artifact.PAGES,
    **unsupported.PAGES,
    **call.PAGES,
    **usage.PAGES,
}
PAGES: dict[str, Page] = dict(sorted(_SUBJECTS.items()))
"""By code, in rising order."""
