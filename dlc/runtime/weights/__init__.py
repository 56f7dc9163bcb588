"""The weights of a loaded model, and the files that they come from."""
