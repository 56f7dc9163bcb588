"""Evaluation with NumPy of what passes and lowerings make: plans, loops, and the threads of a GPU."""
