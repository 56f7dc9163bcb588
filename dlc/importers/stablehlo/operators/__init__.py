"""The operations of StableHLO that are imported, one module for each group of them."""
