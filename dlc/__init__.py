"""dlc: a deep-learning compiler that a person can read from end to end."""

__version__ = "0.1.0"
