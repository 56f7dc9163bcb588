"""Memory of plans beside their bounds and beside the peers."""
