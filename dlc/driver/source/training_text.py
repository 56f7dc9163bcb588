"""Training facts in IR text: the module's attribute `dlc.training`, as the manifest has it.

The functions of a step say the rest themselves. Artifacts have the facts in their manifest alone, so that
a model that trains with another seed has the same code.
"""

from __future__ import annotations

from dlc.dialects.builtin import Module
from dlc.runtime.artifact.canonical_json import BadJson, dump, load
from dlc.runtime.artifact.manifest import Training
from dlc.runtime.artifact.schema import Mismatch, decode, encode

ATTRIBUTE = "dlc.training"


def write_training(module: Module, training: Training | None) -> None:
    """Say in a module how it trains, if it does."""
    if training is not None:
        module.attributes[ATTRIBUTE] = dump(encode(training)).decode()


def take_training(module: Module) -> Training | None:
    """Remove the training facts from a module and return them.

    Raises ModelError (D0301) for an attribute that says something else.
    """
    text = module.attributes.pop(ATTRIBUTE, None)
    if text is None:
        return None
    try:
        return decode(Training, load(str(text).encode()))
    except (BadJson, Mismatch, UnicodeError) as error:
        raise module.fail(f"{ATTRIBUTE} does not say how a model trains: {error}") from None
