"""Keys of random numbers: from the seed and from where in the model a number is drawn.

The place is the path of calls, each with its number among the calls of the same function, and the number
of the draw in the innermost function. So formatting, fusing and recomputing change no random number, and
`site="name"` lets draws be added before others.
"""

from __future__ import annotations

import hashlib

from dlc.dialects import array, rng
from dlc.frontend.elaboration.trace import Trace
from dlc.ir.attributes import Dense
from dlc.ir.core import Value
from dlc.ir.types import U64, TensorType

__all__ = ["SEED", "SEED_NAME", "random_key", "seed_default"]

SEED = TensorType(U64)
"""The type of the implicit input `seed` of an entry point that draws."""
SEED_NAME = "seed"


def random_key(at: Trace, site: str | None) -> Value:
    """The key of one draw at the place reached."""
    key = _base(at)
    frame = at.frame
    if site is None:
        site = str(frame.draws)
        frame.draws += 1
    digest = hashlib.sha256(f"{frame.key}/{site}".encode()).digest()
    number = int.from_bytes(digest[:8], "little") >> 1
    key = at(rng.Fold(key, at(array.Fill(number, SEED))))
    for loop in at.loops:
        key = at(rng.Fold(key, loop.counter()))
    return key


def _base(at: Trace) -> Value:
    """The key of the seed, made once in each entry point."""
    if at.base_key is None:
        with at.inside(at.top):
            at.base_key = at(rng.Key(_seed(at)))
    return at.base_key


def _seed(at: Trace) -> Value:
    """The input `seed`: the entry point's own, or one more that it gets."""
    for argument in at.top.arguments:
        if argument.name == SEED_NAME:
            if argument.type is not SEED:
                raise at.fail(
                    "D0320",
                    "an entry point that draws has the input seed: u64, and this one calls another "
                    "input seed",
                    help="rename the other input",
                )
            return argument
    at.implicit_seed = True
    return at.top.add_argument(SEED, SEED_NAME)


def seed_default() -> Dense:
    """The seed of a call that gives none."""
    return Dense(SEED, bytes(8))
