"""The questions that `dlc why MODEL QUESTION` answers, one row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlc.driver.compile.flags import settings_of_flags
from dlc.driver.memory.asked import models_of
from dlc.driver.profile.measured import ProfileRequest
from dlc.driver.report.questions import alive, copied, fused, kernel, layout, on_gpu, recomputed
from dlc.driver.report.questions.answers import Answer
from dlc.driver.report.questions.slow import explain_slow
from dlc.driver.report.questions.traced import Node, Traced, entries_of, trace
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.outputs import JSON
from dlc.driver.run.request import CompileRequest
from dlc.errors import UsageError
from dlc.errors.suggest import did_you_mean, suggest
from dlc.runtime.artifact.contents import Artifact


class Asked(NamedTuple):
    """A model, the names of values that a question is about, and the call that is measured if need be."""

    request: CompileRequest
    names: Sequence[str]
    call: CallRequest
    threads: int | None = None


class Reply(NamedTuple):
    """The answer about an entry point, for people and for programs."""

    entry: str
    text: str
    data: JSON


@dataclass(frozen=True, slots=True)
class Question:
    """A question: what it is called, the names that it is about, and what it asks."""

    name: str
    about: tuple[str, ...]
    asks: str

    @property
    def measures(self) -> bool:
        """Whether it is answered from a call, which inputs and sizes change."""
        return False

    def reply(self, asked: Asked) -> Reply:
        """The answer."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ValueQuestion(Question):
    """A question about values of the graph."""

    answer: Callable[[Traced, Sequence[Node]], Answer]

    def reply(self, asked: Asked) -> Reply:
        entry, answer = answer_about_values(self, asked)
        return Reply(entry, answer.text, answer.data)


@dataclass(frozen=True, slots=True)
class SlowQuestion(Question):
    """The question about a whole model, which is measured."""

    @property
    def measures(self) -> bool:
        return True

    def reply(self, asked: Asked) -> Reply:
        found = explain_slow(ProfileRequest(asked.request, asked.call, asked.threads))
        return Reply(found.entry, found.text, found.data)


QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        SlowQuestion("slow", (), "which kernels take longer than they must, and why"),
        ValueQuestion("fused", ("A", "B"), "does one kernel compute both", fused.answer),
        ValueQuestion("copied", ("A",), "are its elements copied", copied.answer),
        ValueQuestion("layout", ("A",), "in which order do its elements lie", layout.answer),
        ValueQuestion("kernel", ("A",), "which kernel computes it", kernel.answer),
        ValueQuestion("alive", ("A",), "how long is its memory in use", alive.answer),
        ValueQuestion("recomputed", ("A",), "is it computed more than once", recomputed.answer),
        ValueQuestion("on-gpu", ("A",), "does a GPU compute it", on_gpu.answer),
    )
}


def question_of(words: Sequence[str]) -> Question | None:
    """The question that the words of a command line ask; None where they are words to look for.

    A lone word is one to look for unless its question is about nothing else. Raises UsageError (D0901) for
    a question about another number of values.
    """
    question = QUESTIONS.get(words[0]) if words else None
    if question is None or (len(words) == 1 and question.about):
        return None
    if len(words) - 1 != len(question.about):
        raise _miscounted(words, question)
    return question


def check_is_no_question(words: Sequence[str]) -> None:
    """Raises UsageError (D0901) where words, which nothing was decided about, are nearly a question.

    A lone word may begin one, and the first of others may be misspelt.
    """
    question = QUESTIONS.get(words[0]) if len(words) == 1 else None
    if question is not None and question.about:
        raise _miscounted(words, question)
    near = suggest(words[0], QUESTIONS) if len(words) > 1 else None
    if near is not None:
        raise UsageError(
            f"nothing was decided about {' '.join(words)}",
            code="D0901",
            help=f"did you mean the question {near}?",
        )


def _miscounted(words: Sequence[str], question: Question) -> UsageError:
    name, count = question.name, len(question.about)
    about = "the whole model" if not count else "1 value" if count == 1 else f"{count} values"
    return UsageError(
        f"{name} asks about {about}, found {' '.join(words[1:]) or 'none'}",
        code="D0901",
        help=f"write dlc why MODEL {' '.join((name, *question.about))}",
    )


def answer_question(question: Question, asked: Asked) -> Reply:
    """The answer to a question. Raises what `answer_about_values` and `profile_model` do."""
    reply = question.reply(asked)
    named = {"model": asked.request.path, "entry": reply.entry}
    about: JSON = {**named, "question": question.name, "about": list(asked.names)}
    return reply._replace(data={**about, **reply.data})


def answer_about_values(question: ValueQuestion, asked: Asked) -> tuple[str, Answer]:
    """The entry point that has the values, and the answer.

    It is compiled as the decisions of an artifact say it was, down to loops. Raises UsageError (D0911)
    where no entry point has values of these names.
    """
    request, names, entry = asked.request, asked.names, asked.call.entry
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
