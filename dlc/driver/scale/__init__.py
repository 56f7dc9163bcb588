"""Predicted times of steps and calls among many ranks."""
