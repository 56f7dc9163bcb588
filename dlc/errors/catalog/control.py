"""Error pages: see `dlc.errors.catalog`."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {}
