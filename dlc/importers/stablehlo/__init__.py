"""StableHLO modules, as JAX writes them, become graph IR.

`opening` files and functions of JAX · `reading` modules to `facts`, with `attributes`: these alone know the
bindings of MLIR · `importing` a module, operation by operation · `node_context` what the importer of one
operation is given · `known` numbers and sizes that are known while importing · `polymorphism` dims and
conditions of JAX · `formulas` what a region computes. The operations, each family with a table by their
names: `elementwise` · `special_functions` · `bits` · `shapes` · `slices` · `gathering` · `scattering` ·
`products` · `convolution` · `reductions` · `windows` · `ordering` · `control`, with `counted_loops`.
"""
