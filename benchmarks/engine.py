"""What the engine itself costs: a call, waking the threads, sharing a wave, a step.

    python benchmarks/engine.py [--threads 2] [--json]

Every figure is the best of many repetitions, in nanoseconds. Kernels here do nothing.
"""

from __future__ import annotations

import argparse
import json

from dlc.driver.tune.engine_calls import CHEAP, DEAR, LOOPS, MANY, ONE, TWO, EngineCalls, looped
from dlc.runtime.cpu import threads


def measure(thread_count: int) -> dict[str, float]:
    bench = EngineCalls()
    small, shared = bench.wave(ONE, ONE), bench.wave(MANY, DEAR)
    crew = f"{thread_count} threads"
    return {
        "empty call": bench.native([]),
        "call of three small ops": bench.native(3 * small),
        "the same call from Python": bench.python(3 * small),
        "small op in a loop": bench.native(looped(small), calls=20) / LOOPS,
        f"call with one shared wave, {crew}": bench.native(shared, thread_count),
        "wave in as many chunks as there can be": bench.native(
            looped(shared), thread_count, calls=20
        )
        / LOOPS,
        "wave of two chunks in a loop, 2 threads": bench.native(
            looped(bench.wave(TWO, CHEAP)), 2, calls=20
        )
        / LOOPS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=min(2, threads.default_threads()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.threads)
    if options.json:
        print(json.dumps({name: round(value, 1) for name, value in figures.items()}))
        return
    for name, value in figures.items():
        print(f"{value:9.1f} ns  {name}")


if __name__ == "__main__":
    main()
