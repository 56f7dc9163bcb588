"""Fuzzers: random programs against other implementations, hostile files against every reader."""
