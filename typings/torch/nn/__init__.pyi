from collections.abc import Callable

from torch.nn import functional as functional

class Module:
    forward: Callable[..., object]
