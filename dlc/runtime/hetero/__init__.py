"""Heterogeneous execution: programs whose calls run on a CPU and a GPU."""
