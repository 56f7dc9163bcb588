"""`dlc why MODEL QUESTION`: one module for each question, and `registry` with a row for each."""
