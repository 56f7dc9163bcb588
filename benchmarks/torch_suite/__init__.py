"""The networks of the zoo by `dlc.from_torch`, beside PyTorch itself."""
