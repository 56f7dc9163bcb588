"""Graph IR becomes model text that a person can read and change.

`terms` what a value is in the text · `graph` what is known about values · `pattern` recognising what a
function makes · `spelling` the table, filled by `layers`, `functions`, `shapes` and `elementwise` ·
`regions` the operations of a function, with those in choices and loops · `expressions` terms as text ·
`body` what gets a name · `members` what is declared · `names` · `writer` the whole.
"""

from dlc.export.model_text.writer import Written, write_model

__all__ = ["Written", "write_model"]
