"""Whole networks side by side with onnxruntime and OpenVINO."""
