"""The operations, one file per dialect; importing this package makes all of them known.

Text and graph: `builtin` and `func` modules and functions (MLIR's) · `weight` trained tensors · `array`
tensor mathematics · `rng` random numbers · `nn` what decomposes into `array` · `flow` control flow ·
`comm` transfers between devices and ranks. Kernels: `kernel` what is computed together · `scalar` one
element at a time; `expr` and `formulas` write both with operators. Plans and loops: `mem` where values
live · `loop` and `vec` how a kernel runs on a processor · `simt` on a GPU.
"""
