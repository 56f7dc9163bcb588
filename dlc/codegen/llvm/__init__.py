"""LLVM: the text of lowered kernels, and machine code made of it."""
