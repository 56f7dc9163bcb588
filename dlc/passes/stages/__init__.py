"""Programs of the stages of a pipeline: `cut` before derivatives are taken, `split` after."""
