"""Entry points as functions of JAX: `to_jax`.

`jax_function` what a user calls · `derived` the entry points compiled for it: with weights as arguments,
and gradients · `native_calls` how XLA calls compiled code without Python.
"""
