"""PTX and machine code for NVIDIA GPUs, from LLVM text."""
