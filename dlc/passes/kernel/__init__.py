"""Passes over kernels: fusion, packing of weights, reductions and products in several parts."""
