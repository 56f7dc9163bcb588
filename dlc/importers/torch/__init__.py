"""Graphs of PyTorch become graph IR.

`dynamic` the axes whose size calls choose · `exporting` a module by `torch.export` · `reading` its graph to
`facts`, which alone knows torch.fx · `sizes` its symbolic sizes as ours · `importing` the graph, node by
node · `node_context` what the importer of one operator is given. The operators of ATen, each family with a
table by their names: `elementwise` · `shapes` · `places` · `products` · `reductions` · `windows` ·
`normalization` · `random_numbers` · `gradients` · `control`.
"""
