"""The weights that a model text declares: their types and first values."""
