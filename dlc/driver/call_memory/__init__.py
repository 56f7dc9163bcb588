"""The memory that a call of an entry point needs, in bytes."""
