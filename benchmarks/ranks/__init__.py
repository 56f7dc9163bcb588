"""Training by several ranks, and their collectives, side by side with PyTorch and mpi4py."""
