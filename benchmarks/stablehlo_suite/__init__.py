"""The single-operation cases of JAX's own test suite as StableHLO modules, run by JAX and by dlc.

`cases` makes and keeps them · `comparing` says whether results agree · `examine` takes a case through dlc ·
`workers` processes that survive crashes and hangs.
"""
