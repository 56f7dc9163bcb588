"""Where buffers lie in one arena: intervals of time with sizes go in, offsets come out.

Nothing here knows of the IR. `buffers` says what is given and what a right answer is, `greedy` places at
once, `exact` finds out whether a capacity is enough, `problem` makes its tables, `portfolio` combines them;
`order` is for sizes that are not known yet.
"""

from dlc.planning.arena.buffers import ALIGNMENT, Buffer, align, find_overlap, height, lower_bound
from dlc.planning.arena.exact import Search, Tables, search
from dlc.planning.arena.portfolio import Placement, place
from dlc.planning.arena.symbolic_order import find_order, order_above

__all__ = [
    "ALIGNMENT",
    "Buffer",
    "Placement",
    "Search",
    "Tables",
    "align",
    "find_order",
    "find_overlap",
    "height",
    "lower_bound",
    "order_above",
    "place",
    "search",
]
