"""`dlc show --html`: a model at every level as one page that needs nothing else."""
