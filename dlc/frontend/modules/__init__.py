"""Modules and their instances: members, layers, the root, and names of weights in files."""
