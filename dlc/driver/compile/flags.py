"""The settings that an artifact says it was made with, from its flags."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlc.driver.compile.cost_table import BUILT_IN, rows_of_flag
from dlc.driver.compile.settings import Settings
from dlc.runtime.system.counts import whole_number


def settings_of_flags(flags: Iterable[str]) -> Settings:
    """The settings with these flags; those that this version does not know are left out.

    >>> chosen = Settings(3, conv="direct", costs=BUILT_IN)
    >>> settings_of_flags(chosen.flags) == chosen
    True
    """
    found = Settings(costs=BUILT_IN)
    for flag in flags:
        name, _, text = flag.partition("=")
        number = whole_number(text) or 0
        match name:
            case "-O0" | "-O1" | "-O2" | "-O3":
                found = replace(found, level=int(name[2:]))
            case "--target":
                found = replace(found, target=text)
            case "--matmul":
                found = replace(found, matmul=text)
            case "--disable-pass":
                found = replace(found, disabled=found.disabled | {text})
            case "--max-memory":
                found = replace(found, max_memory=number)
            case "--plan-effort":
                found = replace(found, plan_effort=number)
            case "--matmul-precision":
                found = replace(found, matmul_precision=text)
            case "--accuracy":
                found = replace(found, accuracy=text)
            case "--bisect":
                found = replace(found, bisect=number)
            case "--conv":
                found = replace(found, conv=text)
            case "--costs":
                found = replace(found, costs=rows_of_flag(text))
            case "--dim":
                dim, _, interval = text.partition("=")
                low, _, high = interval.partition("..")
                bounds = whole_number(low) or 0, whole_number(high) if high else None
                found = replace(found, dims={**found.dims, dim: bounds})
            case _:
                pass
    return found
