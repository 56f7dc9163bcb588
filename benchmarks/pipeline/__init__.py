"""Training by the stages of a pipeline."""
