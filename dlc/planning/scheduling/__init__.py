"""In which order work is done: what it reads and makes goes in, orders and what they hold come out.

Nothing here knows of the IR. `chores` says what an order holds, `candidates` finds orders at once, `moves`
improves one, `search` combines them; `any_order` says what no order does with less than.
"""

from dlc.planning.scheduling.lower_bound import Task, held_beside, least_set, witnesses
from dlc.planning.scheduling.search import Found, as_written, best_order
from dlc.planning.scheduling.tasks import Chore, Chores, Order

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
