"""Model text (`.dlm`): lexer, parser, syntax tree, formatter; names and types are the frontend's.

`source` texts and places · `lexer` · `ast` the tree · `parser` · `fmt` the canonical layout.
"""
