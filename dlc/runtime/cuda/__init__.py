"""Running artifacts on NVIDIA GPUs, through the driver interface of cuda-python."""
