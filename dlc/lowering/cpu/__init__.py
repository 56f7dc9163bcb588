"""Kernels as loops over registers for CPUs, one kernel family a file."""
