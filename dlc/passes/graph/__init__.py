"""Passes over the graph: simplification, derivatives, layouts, and which device runs what."""
