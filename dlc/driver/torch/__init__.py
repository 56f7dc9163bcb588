"""Modules of PyTorch, compiled: `from_torch` and the backend of `torch.compile`.

`compiling` imported graphs · `tensors` of PyTorch as arguments and results, without copies ·
`compiled_module` what `from_torch` gives · `differentiable` and `gradients` its backward pass ·
`backend` what `torch.compile` finds · `dynamo` the backend itself.
"""
