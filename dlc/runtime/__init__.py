"""The runtime: loads and runs compiled models without a compiler, with NumPy alone."""
