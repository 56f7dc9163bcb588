"""A linker: object files become one position-independent image."""
