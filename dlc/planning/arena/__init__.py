"""Dynamic storage allocation in one arena: lifetimes with sizes go in, offsets come out.

This is interval packing, an NP-hard problem. Nothing here knows the IR. `buffers` defines the problem and
a valid answer, `greedy` is best fit, `exact` a branch-and-bound search for a placement within a capacity,
`problem` builds its tables, `portfolio` combines them; `symbolic_order` and `stacking` are for sizes that
are known only in a call.
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
