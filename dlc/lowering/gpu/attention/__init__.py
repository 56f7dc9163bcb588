"""Attention and its gradient for GPUs, by scalar arithmetic and by matrix instructions."""
