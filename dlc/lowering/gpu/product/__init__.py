"""Products and convolutions for GPUs: which strategy, in which tiles, through which memory."""
