"""The processor: its features, threads and BLAS, and compiled code made ready to run on it."""
