"""The whole way from a model to an artifact or a result, and every stop between them."""
