"""Text in and out: model text (`.dlm`) as a syntax tree and back, and IR text (`.dlir`).

Model text, names and types apart, which are the frontend's: `source` texts and places · `lexer`,
`literals`, `words` · `ast` the tree, `tree` walking and comparing it · `parser` and its parts
`parser_*` · `fmt` the canonical layout, its parts `fmt_*`, and `layout` documents that know where they
may break · `suggest` what a misspelt word was meant to be. IR text: `ir_*`.
"""
