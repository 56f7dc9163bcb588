"""Gradients by compiled training steps beside PyTorch's."""
