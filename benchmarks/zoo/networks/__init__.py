"""The networks that `python -m benchmarks zoo make` exports, one module for each kind of input."""
