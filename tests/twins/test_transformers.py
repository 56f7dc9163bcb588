"""docs/recipes.md: a checkpoint of Transformers is read by the names given there, and has its logits."""

from __future__ import annotations

import re

import numpy as np

import dlc
from tests.documents import ROOT
from tests.twins.cases import EXAMPLES, TRANSFORMERS

SETTINGS = {"V": 20, "D": 16, "H": 4, "G": 2, "L": 2, "hidden": 24}


def test_a_llama_of_transformers_gives_its_logits() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    names = re.search(r'^NAMES = """\n(.*?)"""$', page, re.M | re.S)
    assert names is not None
    with np.load(TRANSFORMERS) as file:
        weights = dict(file)
    ids, logits = weights.pop("ids"), weights.pop("logits")
    text = (EXAMPLES / "llama.dlm").read_text(encoding="utf-8") + names[1]
    model = dlc.compile(text=text, settings=SETTINGS, weights=weights)
    session = model.session(B=2, S=8)
    session.step(np.ascontiguousarray(ids[:, :4]))
    found = np.asarray(session.step(np.ascontiguousarray(ids[:, 4:]), np.int32(4)))
    np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-6)
