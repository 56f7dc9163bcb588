"""Memory-aware list scheduling: from tasks with reads and writes to an order with a low memory peak.

Nothing here knows the IR. `tasks` computes the memory that an order needs, `candidates` builds orders by
list scheduling, `moves` improves one by local search, `search` combines them; `lower_bound` computes what
every order needs.
"""

from dlc.planning.scheduling.lower_bound import Footprint, least_live, live_across, witnesses
from dlc.planning.scheduling.search import Schedule, as_written, best_order
from dlc.planning.scheduling.tasks import Order, Task, TaskGraph

__all__ = [
    "Footprint",
    "Order",
    "Schedule",
    "Task",
    "TaskGraph",
    "as_written",
    "best_order",
    "least_live",
    "live_across",
    "witnesses",
]
