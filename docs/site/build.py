"""Builds the site of the documents, which can be read and searched without a network.

    python docs/site/build.py

writes `build/docs/site`. The pages are those of the repository, copied to `build/docs/pages` in the folders
that they lie in, so that their links lead where they lead there. A linked file that is not a page, such as
a model text or a program, becomes a page that shows it. A link that leads nowhere ends the build with
an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "docs"
PAGES = BUILD / "pages"
LINK = re.compile(
    r"(?P<code>^```.*?^```$|`[^`\n]+`)|(\]\(|href=\")([^)\s\"#:]+)(#[^)\s\"]*)?([)\"])", re.M | re.S
)
"""A link, or code, in which there are none."""
FENCE = re.compile(r"^```(?:dlm-\w+[^\n]*|ebnf)$", re.M)
LANGUAGES = {
    "": "text",
    ".dlm": "dlm",
    ".py": "python",
    ".json": "json",
    ".txt": "text",
    ".sh": "sh",
}
"""Of files that are shown, by the end of their names; the page of another one says its size."""
SHOWN = 200_000
"""So is the page of a file of more bytes."""


def sources() -> list[Path]:
    """The pages: those at the root, of the documents and of the examples."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(found)


def staged(source: Path) -> str:
    """The text of a page for the generator. Files that it links to get a page of their own."""

    def link(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        begin, path, anchor, end = found.groups()[1:]
        target = (source.parent / path).resolve()
        if target.is_dir() and (target / "README.md").exists():
            path = f"{path.rstrip('/')}/README.md"
        elif target.exists() and target.suffix not in {".md", ".svg", ".png"}:
            show(target)
            path = f"{path.rstrip('/')}.md"
        return f"{begin}{path}{anchor or ''}{end}"

    def fence(found: re.Match[str]) -> str:
        return "```dlm" if "dlm" in found[0] else "```text"

    return FENCE.sub(fence, LINK.sub(link, source.read_text(encoding="utf-8")))


def show(target: Path) -> None:
    """Write the page of a file, or of a folder, which lists what is in it."""
    name = target.relative_to(ROOT)
    if target.is_dir():
        rows = sorted(each.name for each in target.iterdir() if each.name[0] not in "._")
        content = "\n".join([f"- `{row}`" for row in rows])
    elif target.stat().st_size > SHOWN or target.suffix not in LANGUAGES:
        content = f"{target.stat().st_size:,} bytes, in the repository."
    else:
        content = f"````{LANGUAGES[target.suffix]}\n{target.read_text(encoding='utf-8')}````"
    page = PAGES / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    front = "---\nsearch:\n  exclude: true\n---\n"
    page.write_text(f"{front}\n# {name.as_posix()}\n\n{content}\n", encoding="utf-8")


def stage() -> None:
    """Lay the pages and their pictures out."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for source in sources():
        page = PAGES / source.relative_to(ROOT)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(staged(source), encoding="utf-8")
    for picture in [*ROOT.glob("docs/**/*.svg"), *ROOT.glob("docs/**/*.png")]:
        copy(picture)
    for picture in ROOT.glob("examples/**/*.png"):
        copy(picture)
    copy(Path(__file__).parent / "extra.css")


def copy(path: Path) -> None:
    """Put a file where it lies in the repository."""
    target = PAGES / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def main() -> int:
    """Build the site; gives the exit code."""
    stage()
    shutil.copy(Path(__file__).parent / "mkdocs.yml", BUILD)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=BUILD, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
