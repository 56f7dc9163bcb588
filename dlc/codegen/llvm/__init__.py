"""LLVM: the text of lowered kernels, and its compilation to machine code."""
