"""The `train` block: what it says, and the functions that train a model."""
