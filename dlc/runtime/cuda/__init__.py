"""NVIDIA GPUs through the driver interface of cuda-python, which is imported when one is used."""
