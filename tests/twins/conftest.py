"""What is no test here."""

collect_ignore = ["record.py"]  # it imports PyTorch
