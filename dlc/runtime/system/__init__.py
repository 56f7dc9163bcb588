"""The operating system: memory, files, control groups, and their limits."""
