"""Decoding of ours, for `benchmarks.decoding`.

    python -m benchmarks.decoding.contender_dlc DTYPE ROOM TOKENS WEIGHTS.npz RESULTS.npz THREADS

It fills a cache with room for ROOM tokens from PROMPT tokens and serves calls with TOKENS more at that
position, or with the prompt itself where TOKENS is 0. RESULTS get the logits of the first call.
"""

from __future__ import annotations

import sys

import numpy as np

import dlc
from benchmarks.contenders.serve import serve
from benchmarks.decoding.case import MODEL, PROMPT, SETTINGS, prompt


def main(dtype: str, room: str, tokens: str, weights: str, results: str, threads: str) -> None:
    """Compile the decoder, fill its cache, and serve calls."""
    settings = {**SETTINGS, "F": dtype}
    model = dlc.compile(
        MODEL,
        weights=f"narrow:{weights}",
        settings=settings,
        threads=int(threads),
        # Products of bf16 in pairs, as the peer's: below 2^-126 they count as 0.
        level=3 if dtype == "bf16" else 2,
    )
    session = model.session(B=1, S=int(room))
    begin = np.zeros((), np.int32)
    if int(tokens):
        session.step(prompt(PROMPT), begin)
        begin = np.full((), PROMPT, np.int32)
    ids = prompt(int(tokens) or PROMPT)
    np.save(results, np.asarray(session.step(ids, begin)))
    serve(lambda: session.step(ids, begin), {})


if __name__ == "__main__":
    main(*sys.argv[1:])
