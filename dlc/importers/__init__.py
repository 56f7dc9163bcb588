"""Foreign model formats become model text and weights."""
