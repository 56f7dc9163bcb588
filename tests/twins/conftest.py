"""What is not a test here."""

collect_ignore = ["record.py"]  # it imports PyTorch
