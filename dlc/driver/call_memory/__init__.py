"""What a call of an entry point needs of memory, in numbers."""
