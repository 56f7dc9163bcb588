"""`model.predict.values`: inner values of a call from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from dlc.driver.compile.flags import settings_of_flags
from dlc.driver.run.calls import Arguments
from dlc.driver.run.inner_values import NEW_CODE, ObservedCall
from dlc.driver.run.watch import Watch
from dlc.driver.source.open import open_artifact
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.runtime.artifact.contents import Artifact


class InnerValues(dict[str, NDArray[np.generic]]):
    """Arrays of a call by name; `recomputed` names those that machine code keeps in no memory."""

    recomputed: frozenset[str] = frozenset()


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def values_of(
    artifact: Artifact, names: object, entry: str, named: Mapping[str, object], threads: int
) -> InnerValues:
    """The inner values of a call of an artifact, compiled again from its graph as it was compiled.

    Raises UsageError: D0902 for names that are not a list of texts, D0911 for unknown values, and
    where this compiler makes other code (D0905).
    """
    texts = [name for name in names if isinstance(name, str)] if _is_list(names) else []
    if not _is_list(names) or len(texts) != len(names):
        raise UsageError(
            f"names of values are a list of texts, found {names!r}",
            code="D0902",
            help='write values(["h", "blocks[7].*"], ...)',
        )

    def read() -> SourceModel:
        model = open_artifact(artifact, artifact.manifest.model, Path())
        model.trust_ir = True  # its code runs already
        return model

    settings = settings_of_flags(artifact.manifest.compiler.flags)
    watch = Watch(texts)
    call = ObservedCall(read, settings, None, threads, code=artifact)
    _, notes = call.run(read(), Arguments(entry, dict(named)), watch)
    if NEW_CODE in notes:
        raise UsageError(
            f"{entry}: this compiler makes other machine code of the model than it runs",
            code="D0905",
            help="compile it again, or dlc run --values shows the values of new code",
        )
    seen = watch.seen
    found = InnerValues({name: each.value.values() for name, each in seen.items()})
    found.recomputed = frozenset(n for n, each in seen.items() if each.source == "recomputed")
    return found
