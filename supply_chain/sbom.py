"""The bill of materials of dlc's distributions (an SBOM), in the JSON of CycloneDX 1.6.

It lists what a user installs with dlc, each package in the version of the lock with the hashes of its
files, and says which package needs which. The same lock, distributions and time give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import dlc
from supply_chain.dependencies import dependencies, users_extras
from supply_chain.licences import licence_of
from supply_chain.lock import DEV, Pin, read_lock

Json = dict[str, object]


def bill_of_materials(distributions: Sequence[Path], seconds: int) -> str:
    """The bill of those files as of a time, as text.

    Raises ValueError where a package is installed in another version than that of the lock.
    """
    pins = read_lock(DEV.read_text(encoding="utf-8"))
    needs = dependencies(users_extras())
    always = dependencies(()).keys()
    names = sorted(needs.keys() - {"dlc"})
    url = {"dlc": f"pkg:pypi/dlc@{dlc.__version__}"}
    url |= {name: f"pkg:pypi/{name}@{pins[name].version}" for name in names}
    bill: Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).isoformat(),
            "lifecycles": [{"phase": "build"}],
            "component": {
                **_component("dlc", dlc.__version__, url["dlc"]),
                "externalReferences": [_distribution(file) for file in sorted(distributions)],
            },
        },
        "components": [
            {
                **_component(name, _installed(pins[name]), url[name]),
                "scope": "required" if name in always else "optional",
                "externalReferences": [_files(pins[name], url[name])],
            }
            for name in names
        ],
        "dependencies": [
            {"ref": url[name], "dependsOn": [url[other] for other in sorted(needs[name])]}
            for name in ["dlc", *names]
        ],
    }
    return json.dumps(bill, indent=2) + "\n"


def _component(name: str, its_version: str, url: str) -> Json:
    return {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": its_version,
        "licenses": [{"expression": licence_of(name)}],
        "purl": url,
    }


def _installed(pin: Pin) -> str:
    """The version of a package that is installed: what it needs was read from that one."""
    if version(pin.name) != pin.version:
        raise ValueError(
            f"{pin.name} {version(pin.name)} is installed, {pin.version} is in the lock: make install"
        )
    return pin.version


def _distribution(file: Path) -> Json:
    return {
        "type": "distribution",
        "url": file.name,
        "hashes": [_hash(hashlib.sha256(file.read_bytes()).hexdigest())],
    }


def _files(pin: Pin, url: str) -> Json:
    return {
        "type": "distribution",
        "url": url,
        "comment": "each file of this version, of which an installation has one",
        "hashes": [_hash(each) for each in sorted(pin.hashes)],
    }


def _hash(digest: str) -> Json:
    return {"alg": "SHA-256", "content": digest}
