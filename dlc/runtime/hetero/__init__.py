"""Running programs on a processor and a GPU together."""
