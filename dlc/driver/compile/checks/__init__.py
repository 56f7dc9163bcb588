"""Checks of a compilation: every pass, kernels of a user, and what a failed pass leaves to look at."""
