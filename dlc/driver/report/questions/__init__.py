"""`dlc why MODEL QUESTION`: one module for each question."""
