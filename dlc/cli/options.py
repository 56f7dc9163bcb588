"""Options that several verbs share: each means the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

import typer

from dlc import driver
from dlc.cli.values import pairs, parameters

Model: TypeAlias = Annotated[str, typer.Argument(help="A model: .dlm, .dlir, .dlc or .onnx.")]
Entry: TypeAlias = Annotated[
    str | None, typer.Option(help="The entry point; not needed if there is only one.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Give the result as JSON.")]
Inputs: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--input",
        metavar="NAME=VALUE",
        help="A file (.npy, .npz, .safetensors, a picture), numbers, zeros, or text:...",
    ),
]
Dims: TypeAlias = Annotated[
    list[str], typer.Option("--dim", metavar="NAME=SIZE", help="A named size, such as B=8.")
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option("--random-inputs", metavar="SEED", min=0, help="Random numbers for the rest."),
]
Threads: TypeAlias = Annotated[
    int | None, typer.Option(help="How many threads a call may use; results do not depend on it.")
]
Untrusted: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--untrusted", help="Do not run the machine code of a .dlc: compile its graph again."
    ),
]
Memory: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="The most memory that a call may work in, such as 512MiB."),
]
Bounds: TypeAlias = Annotated[
    list[str],
    typer.Option("--dim", metavar="NAME=LOW..HIGH", help="Narrower bounds of a size: B=1..64."),
]
Level: TypeAlias = Annotated[
    int, typer.Option("-O", help="How hard to optimise: 0 to 3.", metavar="LEVEL")
]
Target: TypeAlias = Annotated[str, typer.Option(help="cpu (this machine), or cpu:x86-64-v3.")]
Weights: TypeAlias = Annotated[
    str | None, typer.Option(help="A weight file, or init:SEED for initial values.")
]
Matmul: TypeAlias = Annotated[
    str, typer.Option(help="Who computes products: blas, generated or auto.")
]
Disabled: TypeAlias = Annotated[
    list[str], typer.Option("--disable-pass", metavar="NAME", help="Leave out a pass.")
]
Chosen: TypeAlias = Annotated[
    list[str],
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the root module."),
]
Module: TypeAlias = Annotated[str | None, typer.Option(help="The root module.")]
Placed: TypeAlias = Annotated[
    list[str],
    typer.Option("--place", metavar="PATH=DEVICE", help="Run a submodule on a device: head=cpu:1."),
]
Verify: TypeAlias = Annotated[
    bool, typer.Option("--verify-each", help="Verify and evaluate the module after every pass.")
]


@dataclass(frozen=True, slots=True)
class Compilation:
    """The options of a compilation as they were given."""

    level: int = 2
    target: str = "cpu"
    weights: str | None = None
    matmul: str = "auto"
    disabled: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    module: str | None = None
    verify: bool = False
    gradient: tuple[str | None, str, str] | None = None
    untrusted: bool = False
    max_memory: int | None = None
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    placed: tuple[str, ...] = ()

    def of(self, path: str) -> driver.Wanted:
        """The compilation of that model with these choices."""
        settings = driver.Settings(
            self.level,
            self.target,
            self.matmul,
            frozenset(self.disabled),
            self.verify,
            self.max_memory,
            self.dims,
        )
        return driver.Wanted(
            path,
            module=self.module,
            parameters=parameters(self.chosen),
            places=pairs("--place", self.placed),
            weights=self.weights,
            settings=settings,
            gradient=self.gradient,
            untrusted=self.untrusted,
        )
