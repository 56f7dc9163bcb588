"""Functions of JAX compiled by dlc, `from_jax`, and entry points as functions of JAX, `to_jax`.

`from_jax` from a function to a compiled model · `exporting` by `jax.export`, with the dims of calls ·
`compiled_function` what is called as the function is.

`to_jax` from an entry point to a function · `jax_function` and `parameter_function` what is called ·
`derived` entry points compiled for it: with weights as arguments, and gradients · `native_calls` how XLA
calls compiled code without Python.
"""
