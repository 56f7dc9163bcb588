"""Error pages: see `dlc.errors.catalog`."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0702": Page(
        "an array on a device that dlc does not reach",
        "Arrays are handed over in memory that the CPU can read. Move it there first, in the library "
        "that made it.",
        "model.predict(x.cuda())",
        "model.predict(x.cpu())",
    ),
}
