"""What a compiled model needs to load and run: no compiler, and NumPy alone."""
