"""Loops of a model text: `scan` and `while`."""
