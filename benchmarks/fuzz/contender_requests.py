"""How a program in the environment of a peer answers: pickled requests on stdin until its end."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable


def answer(answered: Callable[..., object]) -> None:
    """Write the answer to each request, or a text where there is none: the error.

    The answer to an empty request is None: it asks whether the program is ready.
    """
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = answered(*request) if request else None
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side tells it
            reply = f"{type(error).__name__}: {error}"
        pickle.dump(reply, sys.stdout.buffer)
        sys.stdout.buffer.flush()
