"""The processor: its features, threads and BLAS, and loading code for it."""
