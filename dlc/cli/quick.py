"""`dlc run x.dlc` with plain options, without the command line's library, which is slow to load.

What is written in another way (`--input=x`, an option that is not here) is read by the library: `run`
does the same in either case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc import driver
from dlc.cli.report import print_json
from dlc.cli.started import started_by_mpi
from dlc.cli.values import check_kept, pairs, sizes
from dlc.runtime.system.atomic_write import check_writable
from dlc.runtime.system.counts import whole_number

ONCE = ("--entry", "--random-inputs", "--threads", "--device")
VALUED = (*ONCE, "--input", "--output", "--dim")


@dataclass(frozen=True, slots=True)
class PlainRun:
    """The run of an artifact: texts of inputs, files for results, how many threads, which device."""

    path: str
    entry: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    seed: int | None = None
    threads: int | None = None
    device: str | None = None
    weights: str | None = None
    resize: bool = False
    as_json: bool = False
    words: tuple[str, ...] = ()
    """The command line that it was read from."""

    def request(self) -> driver.CallRequest:
        """The call that the arguments ask for.

        Raises UsageError for texts that are not pairs and for files that cannot be written.
        """
        inputs, files = pairs("--input", self.inputs), pairs("--output", self.outputs)
        check_kept(files.values(), [self.path, self.weights, *inputs.values()])
        for path in files.values():
            check_writable(path)
        return driver.CallRequest(
            self.path,
            self.entry,
            inputs,
            sizes(self.dims),
            self.seed,
            self.resize,
            files,
            self.words or ("run", self.path),
        )

    def do(self) -> None:
        """Run it and show the results."""
        request = self.request()
        with driver.load_model(
            self.path, weights=self.weights, threads=self.threads, device=self.device
        ) as model:
            results = driver.call(model, request)
        self.hand_over(results, request)

    def hand_over(self, results: driver.Results, request: driver.CallRequest) -> None:
        """Write the results to their files; where there are none, print them."""
        driver.save_results(results, request.files)
        if self.as_json:
            print_json(driver.as_data(results))
        elif not request.files:
            print(driver.as_text(results))


@dataclass(slots=True)
class _Reader:
    options: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def one(self, name: str) -> str | None:
        texts = self.options.get(name)
        return texts[0] if texts else None

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(self.options.get(name, ()))


def plain_run(arguments: Sequence[str]) -> PlainRun | None:
    """The run that the arguments ask for; None where they are anything else."""
    if len(arguments) < 2 or arguments[0] != "run" or started_by_mpi():
        return None
    reader = _Reader()
    rest = list(arguments[1:])
    while rest:
        word = rest.pop(0)
        if word in VALUED and rest:
            reader.options.setdefault(word, []).append(rest.pop(0))
        elif word == "--json" or not word.startswith("-"):
            reader.options.setdefault("--json" if word == "--json" else "", []).append(word)
        else:
            return None
    if any(len(reader.all(name)) > 1 for name in ONCE):
        return None
    numbers = [reader.one("--random-inputs"), reader.one("--threads")]
    models = reader.all("")
    if len(models) != 1 or not models[0].endswith(".dlc"):
        return None
    seed, threads = (None if text is None else whole_number(text) for text in numbers)
    if [seed is None, threads is None] != [text is None for text in numbers]:
        return None
    return PlainRun(
        models[0],
        reader.one("--entry"),
        reader.all("--input"),
        reader.all("--output"),
        reader.all("--dim"),
        seed,
        threads,
        reader.one("--device"),
        as_json="--json" in reader.options,
        words=tuple(arguments),
    )
