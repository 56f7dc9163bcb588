"""Profiles of calls: the `timeline` of kernels, the `profile` with its rows, the `table` for people."""
