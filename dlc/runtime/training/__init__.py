"""Training a compiled model: the trainer, its weights, checkpoints and history."""
