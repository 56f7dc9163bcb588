"""The script that records values of PyTorch runs where PyTorch is: it has no doctests to collect."""

collect_ignore = ["record_training.py"]
