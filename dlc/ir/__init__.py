"""The IR core: MLIR's data model (operations, blocks, attributes, symbols) as small Python classes.

`dims` symbolic sizes · `types` · `location` · `attributes` · `core` values, operations, blocks ·
`define` how a dialect declares an operation · `builder` · `verify` · `rewrite` patterns and the value
map · `log` the decision log · `passes` the pass manager.
"""
