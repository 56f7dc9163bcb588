"""Networks of PyTorch with seeded weights, as `examples/imported` keeps them."""
