"""The licences of what dlc needs and is made with: `python -m supply_chain.licences` lists and judges them.

A licence is the one that a package declares for itself. The wheels of NumPy and SciPy also have two
libraries of the GNU compilers in them: libgfortran, under the GPL with an exception for programs that are
linked with it, and libquadmath, under the LGPL. The licence of Matplotlib is the PSF's with another name in
it; its wheel also has FreeType and fonts, whose licences ask for a notice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import metadata
from typing import Final, cast

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from supply_chain.dependencies import dependencies, users_extras

ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-CMU",
        "PSF-2.0",
        "Zlib",
        "mpich2",
    }
)
"""Licences that ask for a notice at most: nothing that follows for a user's own program."""
ALLOWED_FOR_DEVELOPERS: Final = {
    # `ptxas` and `nvdisasm`: tests run them, and nothing of them is in dlc or in what dlc makes.
    "nvidia-cuda-nvcc-cu12": "LicenseRef-NVIDIA-Proprietary",
    "nvidia-cuda-nvdisasm": "LicenseRef-NVIDIA-Proprietary",
}
"""Further licences, of single packages that no user installs."""
NAMES: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "ISC License": "ISC",
    "LicenseRef-MPICH": "mpich2",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "PSFL": "PSF-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What packages call licences, where it is not the name that SPDX gives them."""
READ: Final = {
    "contourpy": "BSD-3-Clause",
    "cycler": "BSD-3-Clause",
    "ipython-pygments-lexers": "BSD-3-Clause",
    "kiwisolver": "BSD-3-Clause",
    "prompt-toolkit": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "traitlets": "BSD-3-Clause",
}
"""Packages that do not name their licence but show its text."""


@dataclass(frozen=True, slots=True)
class Licensed:
    """A package with its licence, as an expression of SPDX."""

    name: str
    licence: str
    is_for_users: bool

    @property
    def is_allowed(self) -> bool:
        return is_allowed(self.licence) or (
            not self.is_for_users and ALLOWED_FOR_DEVELOPERS.get(self.name) == self.licence
        )


def is_allowed(licence: str) -> bool:
    """Whether an expression of SPDX without parentheses gives a choice of allowed licences only."""
    return any(
        all(each in ALLOWED for each in choice.split(" AND ")) for choice in licence.split(" OR ")
    )


def licence_of(name: str) -> str:
    """The licence of an installed package. Raises LookupError if it declares none that is known here."""
    if name in READ:
        return READ[name]
    declared = metadata(name)
    for field in ("License-Expression", "License", "Classifier"):
        for text in cast(list[str], declared.get_all(field, [])):
            found = _expression(text.removeprefix("License :: OSI Approved :: "))
            if found is not None:
                return found
    raise LookupError(f"the licence of {name} is not known: read it, and add it to READ")


def _expression(text: str) -> str | None:
    """The licence of that name, as SPDX writes it, or None if it is no licence's."""
    try:
        return canonicalize_license_expression(NAMES.get(text, text))
    except InvalidLicenseExpression:
        return None


def licensed() -> Iterator[Licensed]:
    """Every package that users of dlc install, with any extra, then those of its developers alone."""
    users = dependencies(users_extras()).keys()
    developers = dependencies(["dev"]).keys() - users
    for names, is_for_users in ((users, True), (developers, False)):
        for name in sorted(names - {"dlc"}):
            yield Licensed(name, licence_of(name), is_for_users)


def main() -> int:
    """List all licences; 1 if one is not allowed."""
    refused = 0
    for each in licensed():
        whose = "users" if each.is_for_users else "developers"
        verdict = "" if each.is_allowed else "  NOT ALLOWED"
        print(f"{whose:10}  {each.name:25}  {each.licence}{verdict}")
        refused += not each.is_allowed
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
