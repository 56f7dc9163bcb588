"""The operations, one file per dialect; importing this package makes all of them known.

`builtin` and `func` modules and functions (upstream's) · `weight` trained tensors · `array` tensor
mathematics · `rng` random numbers · `nn` what decomposes into `array` · `flow` control flow · `scalar`
one element at a time · `kernel` what is computed together · `lib` library calls · `mem` where values
live · `loop`, `vec` how a kernel runs.
"""
