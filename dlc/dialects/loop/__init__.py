"""The code of one kernel: loops, branches and memory, close to the machine but without its registers."""

from dlc.dialects.loop.operations import *  # noqa: F403
