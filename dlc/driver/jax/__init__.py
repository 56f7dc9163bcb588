"""Functions of JAX compiled in the same process: `dlc.from_jax`.

`from_jax` from a function to a compiled model · `exporting` by `jax.export`, with the dims of calls ·
`compiled_function` what is called as the function is.
"""
