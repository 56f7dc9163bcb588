"""From graph to kernels: formulas of an element, products, and ordered kernels."""
