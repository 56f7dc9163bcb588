"""`dlc memory`: the memory plan of a model as people and programs see it.

`facts` reads it from an artifact, `asked` from whatever the user names · `needs` what a whole call takes ·
`report` as text and data · `picture` and `page` as a drawing · `trace` for Perfetto · `compare` two of
them · `largest` the largest size that fits.
"""
