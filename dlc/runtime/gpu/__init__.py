"""Running programs on an NVIDIA GPU: calls, launches, graphs, and how a call ends."""
