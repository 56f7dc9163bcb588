"""The index of a sharded checkpoint: a JSON file that says in which safetensors file each array lies.

That of Hugging Face, `model.safetensors.index.json`, has `{"weight_map": {"name": "file", ...}}`. The files
lie beside it. A file is mapped when the first of its arrays is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import cast

from dlc.errors import ArtifactError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.system.stack import check_json_depth

Entries = Mapping[str, Callable[[], Tensor]]


def entries(file: memoryview, path: str, shard: Callable[[str], memoryview]) -> Entries:
    """The arrays of all files of an index; `shard` maps the file of a name, which lies beside it.

    Raises ArtifactError (D0503) for a file that is not an index, or an array that is not where it says.
    """
    where = _weight_map(file, path)
    folder = Path(path).parent

    @cache
    def opened(name: str) -> Entries:
        return safetensors.entries(shard(name), str(folder / name))

    def read(array: str, name: str) -> Tensor:
        found = opened(name).get(array)
        if found is None:
            raise _damaged(path, f"{array} is not in {name}, where the index says")
        return found()

    return {array: partial(read, array, name) for array, name in where.items()}


def metadata(file: memoryview, path: str) -> dict[str, str]:
    """The texts in the metadata of an index, by key. Raises ArtifactError (D0503) for what is no JSON."""
    found = _index(file, path).get("metadata")
    rows = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return {key: text for key, text in rows.items() if isinstance(text, str)}


def _index(file: memoryview, path: str) -> dict[str, object]:
    try:
        data = bytes(file)
        check_json_depth(data)
        index: object = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON: {error}") from None
    return cast("dict[str, object]", index) if isinstance(index, dict) else {}


def _weight_map(file: memoryview, path: str) -> dict[str, str]:
    found = _index(file, path).get("weight_map")
    if not isinstance(found, dict):
        raise _damaged(path, "it has no weight_map, as the index of a sharded checkpoint does")
    rows = cast("dict[str, object]", found)
    names = {array: name for array, name in rows.items() if isinstance(name, str)}
    if len(names) < len(rows) or not all(name.endswith(".safetensors") for name in names.values()):
        raise _damaged(path, "its weight_map names what is no .safetensors file")
    return names


def _damaged(path: str, message: str) -> ArtifactError:
    return ArtifactError(f"{path}: {message}", code="D0503")
