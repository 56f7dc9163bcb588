"""docs/architecture.md: its tables and pictures are those of the code; `--update` writes both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlc.driver.compile import pipelines
from dlc.driver.compile.settings import Settings
from dlc.driver.memory.asked import MemoryRequest, memory_of
from dlc.driver.memory.picture import svg_file
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.ir.core import Op
from dlc.lowering.cpu import kernel_to_loop
from dlc.lowering.graph_to_kernel import arrays
from docs.pictures import draw
from tests.documents import ROOT

PAGE = ROOT / "docs" / "architecture.md"


def passes() -> Iterator[str]:
    """A row for each pass, in the order in which -O2 runs them first."""
    yield from ("| pass | what it does | file |", "| --- | --- | --- |")
    for each in dict.fromkeys(pipelines.pipeline("graph", "loop", 2)):
        yield f"| `{each}` | {each.doc} | `{path_of(each.function)}` |"


def order() -> Iterator[str]:
    """A row for each reason why a pass comes before another."""
    yield from ("| first | then | because |", "| --- | --- | --- |")
    for reason in pipelines.REASONS:
        yield f"| `{reason.first.name}` | `{reason.second.name}` | {reason.because} |"


def lowerings() -> Iterator[str]:
    """A row for each file that lowers operations or kernels, with which."""
    found: dict[str, tuple[str, list[str]]] = {}
    tables: tuple[tuple[str, dict[type[Op], Callable[..., object]]], ...] = (
        ("graph to kernel", {**arrays.LOWERINGS}),
        ("kernel to loop", {**kernel_to_loop.LOWERINGS}),
    )
    for levels, table in tables:
        for cls, function in table.items():
            found.setdefault(path_of(function), (levels, []))[1].append(spelled(cls))
    yield from ("| from, to | file | lowers |", "| --- | --- | --- |")
    for path, (levels, names) in sorted(found.items(), key=lambda item: (item[1][0], item[0])):
        yield f"| {levels} | `{path}` | {', '.join(sorted(names))} |"


def spelled(cls: type[Op]) -> str:
    """An operation by its name; a class that stands for many by its own."""
    return f"`{cls.name}`" if cls.name else f"every `{cls.__name__}`"


def path_of(function: Callable[..., object]) -> str:
    return f"{function.__module__.replace('.', '/')}.py"


TABLES = {"passes": passes, "order": order, "lowerings": lowerings}


def section(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- end -->)", re.S)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_what_the_code_says(name: str, request: pytest.FixtureRequest) -> None:
    wanted = "\n".join(TABLES[name]()) + "\n"
    page = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("update"):
        page = section(name).sub(lambda found: found[1] + wanted + found[3], page)
        PAGE.write_text(page, encoding="utf-8")
    found = section(name).search(page)
    assert found is not None
    if name == "lowerings":  # it may lack what is new, but says nothing that is not so
        assert all(set(row) <= set(known) for row, known in pairs(found[2], wanted))
    else:
        assert found[2] == wanted


def pairs(page: str, code: str) -> Iterator[tuple[list[str], list[str]]]:
    """The words in backticks of each row of a page, with those of the row in the code with that file."""
    rows = {words[0]: words for line in code.split("\n") if (words := re.findall(r"`(.*?)`", line))}
    for line in page.split("\n"):
        if words := re.findall(r"`(.*?)`", line):
            yield words, rows.get(words[0], [])


def lenet_plan() -> str:
    request = CompileRequest("examples/lenet.dlm", settings=Settings(target="cpu:x86-64-v3"))
    return svg_file(memory_of(MemoryRequest(request, "predict", {"B": 1})))


def product() -> str:
    return show_stage(CompileRequest("examples/product.dlm"), Shown(svg=True))


def training_plan() -> str:
    """Of docs/memory.md; for a processor that is always the same."""
    wanted = CompileRequest("examples/digits_mlp.dlm", settings=Settings(target="cpu:x86-64-v3"))
    return svg_file(memory_of(MemoryRequest(wanted, "train_step")))


PICTURES = {
    **draw.PICTURES,
    "lenet-plan.svg": lenet_plan,
    "product.svg": product,
    "training-plan.svg": training_plan,
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_is_drawn(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    drawn = PICTURES[name]()
    path = Path("docs/pictures") / name
    if request.config.getoption("update"):
        path.write_text(drawn, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn


def test_every_folder_of_the_package_is_in_the_table() -> None:
    """A row of its own for each, or a word in the row of the folder above."""
    rows = dict(
        re.findall(r"^\| `(dlc/[\w/]+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    )
    for path in sorted(ROOT.glob("dlc/*/*/__init__.py")):
        folder = path.parent.relative_to(ROOT)
        named = rows.get(folder.parent.as_posix(), "")
        assert folder.as_posix() in rows or f"`{folder.name}`" in named, folder
    assert all((ROOT / folder).is_dir() for folder in rows)


def test_the_layers_in_the_picture_are_those_that_are_checked() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    checked = re.findall(
        r'^    "([a-z |]+)",$', text.partition("layers = [")[2].partition("]")[0], re.M
    )
    assert [" | ".join(layer[::2]) for layer in draw.LAYERS] == checked
