"""Modules of PyTorch, compiled: `from_torch` and the backend of `torch.compile`.

`compiling` imported graphs · `tensors` of PyTorch as arguments and results, without copies ·
`compiled_module` what `from_torch` gives · `dynamo` the backend.
"""
