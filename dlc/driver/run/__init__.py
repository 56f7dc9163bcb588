"""Running a model: inputs from files, calls, results, evaluation and training."""
