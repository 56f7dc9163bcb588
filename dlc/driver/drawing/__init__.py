"""Drawings: the layered layout of graphs, and SVG."""
