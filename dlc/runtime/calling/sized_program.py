"""A checked program of an artifact, and the values of its sizes at each tuple of named sizes.

Loading checks the step table once (`program_check`), and the memory plan at the bounds of the dims; the
plan is checked again at every new tuple of sizes (`plan_check`) before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlc.errors import CallError
from dlc.runtime.abi import ArgKind, ArgWord, Opcode, Root, StepWord
from dlc.runtime.artifact import certificate as certificates
from dlc.runtime.artifact import plan_check, program_check, size_expressions
from dlc.runtime.artifact.certificate import Certificate
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Entry, Program, Target
from dlc.runtime.artifact.plan import Plan, Use
from dlc.runtime.artifact.program_check import BadProgram, ProgramTable, Surroundings, Words
from dlc.runtime.artifact.update_check import UpdateCheck
from dlc.runtime.artifact.weight_splits import source_bytes
from dlc.runtime.calling.device_partition import partition_program
from dlc.runtime.calling.frames import SizedProgram
from dlc.runtime.system.buffers import Bytes, address, aligned_copy


class CompiledProgram:
    """An entry point of a target in its `artifact`. `words` is a private copy of the step table."""

    def __init__(
        self,
        artifact: Artifact,
        target: Target,
        program: Program,
        entry: Entry | None,
        kernels: frozenset[int],
    ) -> None:
        """`entry` is the entry point, None for the program that prepares the weights; `kernels` are the
        numbers of the kernels of the target.

        Raises ArtifactError for an invalid table.
        """
        self.artifact = artifact
        self.target = target.name
        self.name = "" if entry is None else entry.name
        self._is_mixed = target.cpu is not None and target.gpu is not None
        self.program = program
        # A copy: the file under a mapping could change after the check.
        self.words: Bytes = aligned_copy(artifact.section(program.section))
        sources = source_bytes(artifact)
        self._fixed = {
            Root.WEIGHTS: sources if target.prepare is None else target.prepare.bytes,
            Root.SOURCES: sources,
            Root.CONSTANTS: len(artifact.section("constants")),
        }
        tensors = 0 if entry is None else len(entry.inputs) + len(entry.outputs)
        self._table = self._checked(tensors, kernels)
        self._certificate = self._read_certificate()
        self._check_updates(entry)
        self._uses = _arena_uses(self._table)

    def _checked(self, tensors: int, kernels: frozenset[int]) -> ProgramTable:
        around = Surroundings(
            sizes=len(self.program.sizes),
            roots=Root.INPUTS + tensors,
            ops=len(self.program.ops),
            kernels=kernels,
        )
        words: Words = self.words.view(np.dtype("<i8"))
        try:
            return program_check.check_program(words, around)
        except BadProgram as error:
            raise self._bad_program(error) from None

    def _bad_program(self, error: BadProgram) -> Exception:
        return self.artifact.error_context.error(
            "D0611", str(error), section=self.program.section, inside=8 * error.word
        )

    def _read_certificate(self) -> Certificate:
        section = self.program.certificate
        try:
            return certificates.read_certificate(bytes(self.artifact.section(section)))
        except ValueError as error:
            raise self.artifact.error_context.error("D0610", str(error), section=section) from None

    def _check_updates(self, entry: Entry | None) -> None:
        """Check that what an input was is read before it is overwritten; no size decides about that."""
        names = {} if entry is None else {item.name: k for k, item in enumerate(entry.inputs)}
        outputs = () if entry is None else entry.outputs
        updated = {names[output.updates]: output.updates for output in outputs if output.updates}
        try:
            UpdateCheck(self._table, len(names), updated).check(self._certificate.updates)
        except plan_check.BadPlan as error:
            section = self.program.certificate
            raise self.artifact.error_context.error("D0610", str(error), section=section) from None

    def evidence(self, dims: Mapping[str, int]) -> tuple[Certificate, Plan]:
        """The certificate of the artifact, and the memory plan that it gives at these dims, checked.

        Raises BadExpression if a size has no value at them, ArtifactError (D0610) if the plan is invalid.
        """
        sizes = size_expressions.evaluate_all(self.program.sizes, dims)
        plan = certificates.plan_at(self._certificate, dims, sizes)
        try:
            self._check_plan(plan, sizes)
        except plan_check.BadPlan as error:
            raise self._bad_plan(error, dims) from None
        return self._certificate, plan

    def _check_plan(self, plan: Plan, sizes: Sequence[int]) -> None:
        plan_check.check(
            plan,
            [
                Use(wave, [sizes[k] for k in reads], [sizes[k] for k in writes], loop)
                for wave, reads, writes, loop in self._uses
            ],
        )

    def _bad_plan(self, error: Exception, dims: Mapping[str, int]) -> Exception:
        return self.artifact.error_context.error(
            "D0610", f"{error}{_at(dims)}", section=self.program.certificate
        )

    def work(self) -> list[tuple[int, int]]:
        """The wave and the op id of each call in the step table."""
        steps, waves = self._table.steps, self._table.waves
        return [(int(waves[k]), int(steps[k, StepWord.F])) for k in self._table.calls]

    def predicted_nanoseconds(self, sized: SizedProgram) -> dict[int, int]:
        """By op id, what the cost model says for all tiles of a run on one thread."""
        calls = self._table.steps[self._table.calls]
        tiles, costs = (sized.sizes[calls[:, word]] for word in (StepWord.D, StepWord.E))
        return dict(zip(calls[:, StepWord.F].tolist(), (tiles * costs).tolist(), strict=True))

    def at(self, dims: Mapping[str, int], tensors: Sequence[int]) -> SizedProgram:
        """The values of the program's sizes at these dims; the memory plan is checked at them.

        `tensors` are the bytes of each input and output. Raises ArtifactError if a size has no value or
        the plan is invalid, CallError (D0804) if a size is too large or negative.
        """
        program = self.program
        try:
            sizes = size_expressions.evaluate_all(program.sizes, dims)
            arena = size_expressions.parse(program.arena).evaluate(dims, sizes)
            scratch, gpu_scratch = (
                size_expressions.parse(size).evaluate(dims, sizes)
                for size in (program.scratch, program.gpu_scratch)
            )
            plan = certificates.plan_at(self._certificate, dims, sizes)
            if dims and any(view.bytes < 0 for view in plan.views):
                raise CallError(f"a value would have a size below 0{_at(dims)}", code="D0804")
            roots = {**self._fixed, Root.ARENA: arena, Root.SCRATCH: scratch}
            lengths = [roots[root] for root in Root if root != Root.INPUTS]
            if arena != plan.arena:
                raise plan_check.BadPlan(
                    f"the plan is for {plan.arena} bytes, the call has {arena}"
                )
            self._check_plan(plan, sizes)
            program_check.check_amounts(self._table, sizes, [*lengths, *tensors])
            devices = [root.device for root in self._certificate.roots]
            parts = None
            if self._is_mixed:
                parts = partition_program(
                    self._table, sizes, plan.roots, devices, [*lengths, *tensors]
                )
        except size_expressions.TooLarge as error:
            raise CallError(f"{error}{_at(dims)}", code="D0804") from None
        except (size_expressions.BadExpression, plan_check.BadPlan) as error:
            raise self._bad_plan(error, dims) from None
        except BadProgram as error:
            raise self._bad_program(error) from None
        numbers = np.array(sizes or [0], np.int64)
        return SizedProgram(
            numbers, address(numbers), arena, scratch, tuple(tensors), parts, gpu_scratch
        )


def _at(dims: Mapping[str, int]) -> str:
    return f" (at {', '.join(f'{name} = {value}' for name, value in dims.items())})" if dims else ""


def _arena_uses(table: ProgramTable) -> list[Use]:
    """For each call its wave, and the size indices of the arena offsets among its arguments."""
    arguments = table.arguments
    kinds = arguments[:, ArgWord.KIND]
    in_arena = arguments[:, ArgWord.ROOT] == Root.ARENA
    # Lists, since reading an element of an array takes ten times as long.
    pointed, loaded = (
        np.where(in_arena & (kinds == kind), arguments[:, ArgWord.OFFSET], -1).tolist()
        for kind in (ArgKind.POINTER, ArgKind.LOADED)
    )
    calls = table.steps[table.calls]
    words = StepWord.B, StepWord.C, StepWord.G
    columns = [table.waves[table.calls], *[calls[:, word] for word in words]]
    rows = zip(*[column.tolist() for column in columns], strict=True)
    return [
        Use(
            wave,
            _given([*pointed[first : first + reads], *loaded[first : first + count]]),
            _given(pointed[first + reads : first + count]),
            loop,
        )
        for (wave, first, count, reads), loop in zip(rows, _loops(table), strict=True)
    ]


def _loops(table: ProgramTable) -> list[tuple[int, int] | None]:
    """For each call the indices of the first and the last call of the outermost loop around it."""
    opcodes = table.steps[:, StepWord.OPCODE]
    calls = table.calls
    found: list[tuple[int, int] | None] = [None] * len(calls)
    for step in np.flatnonzero((opcodes == Opcode.NEXT) | (opcodes == Opcode.JUMP))[::-1].tolist():
        to = int(table.steps[step, StepWord.C if opcodes[step] == Opcode.NEXT else StepWord.A])
        first, end = np.searchsorted(calls, (to, step)).tolist()
        if first < end and found[end - 1] is None:
            found[first:end] = [(first, end - 1)] * (end - first)
    return found


def _given(offsets: Sequence[int]) -> list[int]:
    """The distinct offsets of arguments that point into the arena."""
    return list(dict.fromkeys([offset for offset in offsets if offset >= 0]))
