"""Graphs of PyTorch become graph IR.

`dynamic` the axes whose size calls choose · `exporting` a module by `torch.export` · `traced` graphs of
AOTAutograd, with `decompositions` · `reading` graphs to `facts`, which alone knows torch.fx · `sizes`
symbolic sizes as ours · `importing` a graph, node by node · `node_context` what the importer of one
operator is given. The operators of ATen, each family with a table by their names: `elementwise` ·
`activations` · `shapes` · `slices` · `constants` · `places` · `products` · `reductions` · `windows` ·
`normalization` · `random_numbers` · `gradients` · `control`.
"""
