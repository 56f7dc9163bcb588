"""Random ONNX graphs, node by node."""
