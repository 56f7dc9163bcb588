"""Whole programs of JAX, imported by dlc: values and gradients against JAX.

`program` what a program is · `programs` the programs, one file for each family · `examine` runs one.
"""
