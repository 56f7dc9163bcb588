"""Memory planning: from kernels to a plan with a schedule, an arena, and an offset for each value."""
