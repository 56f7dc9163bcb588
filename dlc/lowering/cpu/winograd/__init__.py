"""Convolutions in Winograd's form on a processor, and the gradients of their kernels."""
