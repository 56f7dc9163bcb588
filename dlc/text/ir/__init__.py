"""IR as text, in MLIR's generic syntax: printer and parser."""
