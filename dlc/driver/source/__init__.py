"""From a file or text to a model that can be compiled: reading, importing, weights and sizes."""
