"""The ATen operators that are imported, one module for each group of them."""
