"""In which order work is done: what it reads and makes goes in, orders and what they hold come out.

Nothing here knows of the IR. `chores` says what an order holds, `candidates` finds orders at once, `moves`
improves one, `search` combines them; `any_order` says what no order does with less than.
"""

from dlc.passes.ordering.any_order import Task, held_beside, least_set, witnesses
from dlc.passes.ordering.chores import Chore, Chores, Order
from dlc.passes.ordering.search import Found, as_written, best_order

__all__ = [
    "Chore",
    "Chores",
    "Found",
    "Order",
    "Task",
    "as_written",
    "best_order",
    "held_beside",
    "least_set",
    "witnesses",
]
