"""The programs, one file for each family."""
