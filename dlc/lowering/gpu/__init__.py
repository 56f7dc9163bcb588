"""Kernels as functions of a thread for GPUs, one kernel family a file."""
