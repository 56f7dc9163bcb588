"""Kernels, products, networks and their training on a GPU, side by side with PyTorch and JAX."""
