"""Error pages: see `dlc.errors.catalog`."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0701": Page(
        "an operation that dlc cannot compile yet",
        "The model is right, but the target has no kernel for one of its operations. The message lists "
        "every such place at once; the evaluator (`dlc run --interpret`) can still compute them.",
    ),
    "D0702": Page(
        "an array on a device that dlc does not reach",
        "Arrays are handed over in memory that the CPU can read. Move it there first, in the library "
        "that made it.",
        "model.predict(x.cuda())",
        "model.predict(x.cpu())",
    ),
}
