"""A decoder's tokens side by side with PyTorch."""
