"""`dlc lsp`: what editors ask about a text, answered by the compiler's own parser and elaborator.

`meanings` what each name stands for · `observed` types of expressions · `hover`, `completion`, `outline`,
`renaming` one question each · `positions` lines and columns of the protocol · `server` the protocol.
"""
