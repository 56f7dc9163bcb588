"""The operators of ONNX itself, a family a module: each has a table of importers by their names."""
