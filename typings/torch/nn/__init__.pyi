from collections.abc import Callable

class Module:
    forward: Callable[..., object]
