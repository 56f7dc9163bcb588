"""Machine code: LLVM text made into object code, linked into one position-independent image."""
