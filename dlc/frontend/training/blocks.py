"""The `train` blocks of a text: choosing the one that trains, and checking that they can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlc.errors import Label, ModelError, UsageError
from dlc.errors.options import option
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.sources.files import File
from dlc.text.model import ast

__all__ = ["BlockName", "block_names", "blocks_of", "check_blocks", "chosen_block", "module_of"]


class BlockName(NamedTuple):
    """The name of a `train` block, "" without one, and the module that it trains."""

    name: str
    module: str


def train_blocks(file: File) -> list[ast.Train]:
    """The `train` blocks in the order of the text."""
    return [item for item in file.tree.items if isinstance(item, ast.Train)]


def blocks_of(file: File, module: str | None) -> list[ast.Train]:
    """The `train` blocks of a module."""
    return [node for node in train_blocks(file) if node.name == module]


def block_names(file: File) -> tuple[BlockName, ...]:
    """The names of all `train` blocks."""
    return tuple([BlockName(node.block, node.name) for node in train_blocks(file)])


def module_of(file: File, block: str | None) -> str | None:
    """The module that a named block trains; None where no such block is asked for."""
    named = {node.block: node.name for node in train_blocks(file) if node.block}
    return None if block is None else named.get(block)


def check_blocks(ev: Evaluator, file: File) -> None:
    """Record blocks of modules that do not exist (D0206), and blocks that cannot be told apart (D0538)."""
    ev.at.source = file.source
    modules = [n for n, d in file.declared.items() if isinstance(d, ast.Module)]
    nodes = train_blocks(file)
    for number, node in enumerate(nodes):
        if node.name not in modules:
            help = did_you_mean(node.name, modules) or f"there are {', '.join(modules) or 'none'}"
            message = f"there is no module {node.name} to train"
            ev.report(ev.at.fail("D0206", message, node.name_span, help=help))
        for other in nodes[:number]:
            if error := _collision(ev, other, node):
                ev.report(error)
                break


def _collision(ev: Evaluator, first: ast.Train, second: ast.Train) -> ModelError | None:
    """The error for two blocks of one name, or of one module where one has no name."""
    label = Label(ev.at.source.place(first.block_span), "the other one")
    if second.block and second.block == first.block:
        return ev.at.fail(
            "D0538",
            f"two train blocks are called {second.block}",
            second.block_span,
            labels=[label],
            help="call one of them otherwise",
        )
    if second.name == first.name and not (first.block and second.block):
        return ev.at.fail(
            "D0538",
            f"two train blocks train {second.name}, and not both have a name",
            second.block_span,
            labels=[label],
            help=f"name them: train first for {second.name} {{ ... }}",
        )
    return None


def chosen_block(file: File, module: str | None, block: str | None) -> ast.Train | None:
    """The block that trains `module`: the one of this name, or the only one; None if there is none.

    Raises UsageError (D0539) for a name that no block has, and where several blocks train the module and
    none is asked for.
    """
    nodes = blocks_of(file, module)
    if block is not None:
        return _named(file, nodes, block)
    if len(nodes) > 1:
        names = [node.block for node in nodes]
        raise UsageError(
            f"{file.source.name} trains {module} by {' and '.join(names)}",
            code="D0539",
            help=f"say which one is meant: {option('block', names[0])}",
        )
    return nodes[0] if nodes else None


def _named(file: File, nodes: Sequence[ast.Train], block: str) -> ast.Train:
    for node in nodes:
        if node.block == block:
            return node
    names = [node.block for node in train_blocks(file) if node.block]
    known = f"there are {', '.join(names)}" if names else "its train blocks have no names"
    raise UsageError(
        f"{file.source.name} has no train block {block}",
        code="D0539",
        help=did_you_mean(block, names) or known,
    )
