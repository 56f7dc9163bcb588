"""The questions that `dlc why MODEL QUESTION` answers, one row each."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.driver.compile.flags import settings_of_flags
from dlc.driver.memory.asked import models_of
from dlc.driver.report.questions import alive, copied, fused, kernel, layout, on_gpu, recomputed
from dlc.driver.report.questions.answers import Answer, Question
from dlc.driver.report.questions.traced import Traced, entries_of, trace
from dlc.driver.run.request import CompileRequest
from dlc.errors import UsageError
from dlc.errors.suggest import did_you_mean
from dlc.runtime.artifact.contents import Artifact

SLOW = "slow"
"""The question about a whole model, which is measured."""
QUESTIONS = {
    question.name: question
    for question in (
        Question("fused", ("A", "B"), "does one kernel compute both", fused.answer),
        Question("copied", ("A",), "are its elements copied", copied.answer),
        Question("layout", ("A",), "in which order do its elements lie in memory", layout.answer),
        Question("kernel", ("A",), "which kernel computes it", kernel.answer),
        Question("alive", ("A",), "how long is its memory in use", alive.answer),
        Question("recomputed", ("A",), "is it computed more than once", recomputed.answer),
        Question("on-gpu", ("A",), "does a GPU compute it", on_gpu.answer),
    )
}


def question_of(words: Sequence[str]) -> Question | None:
    """The question that the words of a command line ask; None where they are words to look for.

    Raises UsageError (D0901) for a question about another number of values.
    """
    if len(words) < 2:
        return None
    question = QUESTIONS.get(words[0])
    wanted = _wanted(words[0])
    if wanted is not None and len(words) - 1 != len(wanted):
        raise _miscounted(words, wanted)
    return question


def check_is_no_question(words: Sequence[str]) -> None:
    """Raises UsageError (D0901) where a lone word, which nothing was decided about, begins a question."""
    wanted = _wanted(words[0]) if len(words) == 1 else None
    if wanted:
        raise _miscounted(words, wanted)


def _wanted(name: str) -> tuple[str, ...] | None:
    """What a question is about, as its help writes it; None where there is no such question."""
    if name == SLOW:
        return ()
    return QUESTIONS[name].about if name in QUESTIONS else None


def _miscounted(words: Sequence[str], wanted: Sequence[str]) -> UsageError:
    name, count = words[0], len(wanted)
    about = "the whole model" if not count else "1 value" if count == 1 else f"{count} values"
    return UsageError(
        f"{name} asks about {about}, found {' '.join(words[1:]) or 'none'}",
        code="D0901",
        help=f"write dlc why MODEL {' '.join((name, *wanted))}",
    )


def answer_question(
    request: CompileRequest, question: Question, names: Sequence[str], entry: str | None = None
) -> tuple[str, Answer]:
    """The entry point that has the values, and the answer.

    It is compiled as the decisions of an artifact say it was, down to loops. Raises UsageError (D0911)
    where no entry point has values of these names.
    """
    settings = request.settings
    if request.is_compiled:
        settings = settings_of_flags(Artifact.read(request.path).manifest.compiler.flags)
    failure: UsageError | None = None
    names_there: list[str] = []
    for number, model in enumerate(models_of(request, entry)):
        for name in entries_of(model) if entry is None else [entry]:
            fresh = list(models_of(request, entry))[number]
            traced: Traced = trace(fresh, settings, name)
            try:
                return name, question.answer(traced, [traced.node(each) for each in names])
            except UsageError as error:
                failure = failure or error
                names_there += traced.nodes
    if failure is None:
        raise UsageError("the model has no entry point", code="D0904", help="write `export fn`")
    unknown = next((each for each in names if each not in names_there), names[0])
    hint = did_you_mean(unknown, names_there)
    raise (
        failure
        if hint is None
        else UsageError(f"no entry point has a value {unknown}", code="D0911", help=hint)
    )
