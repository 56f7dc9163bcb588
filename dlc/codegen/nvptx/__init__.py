"""PTX for NVIDIA GPUs: the text of GPU kernels, and what `ptxas` makes of it."""
