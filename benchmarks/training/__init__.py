"""Training steps side by side with PyTorch and JAX."""
