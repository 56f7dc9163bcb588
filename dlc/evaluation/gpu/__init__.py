"""A simulator of GPU kernels: warps of 32 threads, their memory, and the races among them."""
