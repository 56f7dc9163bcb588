"""What nests deeply neither ends the process nor changes what Python allows other threads."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import dlc
from dlc.errors import ArtifactError, InternalError
from dlc.frontend.elaborate import elaborate
from dlc.runtime.artifact import canonical_json
from dlc.runtime.system.stack import check_json_depth, is_deep, with_room
from dlc.runtime.weights.files import open_weights
from tests.faults.injection import failing

CALLS = 95
DEEP = "\n".join(
    [
        "dlc 1",
        "fn f0(x) = x + 1",
        *(f"fn f{k}(x) = " + "(1 + " * 30 + f"f{k - 1}(x)" + ")" * 30 for k in range(1, CALLS)),
        f"export fn f(x: f32) -> f32 = f{CALLS - 1}(x)",
    ]
)
"""Functions that call each other, each 30 expressions deep."""

HOSTILE = """
import json, sys, threading
from dlc.frontend.elaborate import elaborate
from dlc.runtime.artifact import canonical_json
from dlc.runtime.weights.files import open_weights

def tried(read):
    try:
        read()
    except Exception as error:
        return type(error).__name__
    return "read"
"""


def run(program: str, folder: Path) -> list[str]:
    """The lines that a program prints, in a process of its own, which a C stack that ends would end."""
    ended = subprocess.run(
        [sys.executable, "-c", HOSTILE + textwrap.dedent(program)],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
    )
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-2000:])
    return ended.stdout.split()


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def called(depth: int) -> bool:
    """`is_deep`, so many calls further down."""
    return called(depth - 1) if depth else is_deep()


def test_deep_calls_do_not_change_the_limit_of_other_threads() -> None:
    limits: set[int] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            limits.add(sys.getrecursionlimit())

    before = sys.getrecursionlimit()
    watcher = threading.Thread(target=watch)
    watcher.start()
    elaborating = [
        threading.Thread(target=elaborate, args=("f.dlm",), kwargs={"text": DEEP}) for _ in range(2)
    ]
    for thread in elaborating:
        thread.start()
    for thread in elaborating:
        thread.join()
    ended.set()
    watcher.join()
    assert limits == {before} == {sys.getrecursionlimit()}


def test_a_deep_text_means_what_it_says() -> None:
    assert dlc.compile(text=DEEP).f(0.0) == 1 + 30 * (CALLS - 1)


def test_a_deep_text_is_read_where_the_calls_of_the_program_nest_deeply() -> None:
    def descend(depth: int) -> object:
        return descend(depth - 1) if depth else elaborate("f.dlm", text=DEEP)

    assert descend(800) is not None


@pytest.mark.long
def test_deep_json_is_refused_while_another_thread_elaborates(tmp_path: Path) -> None:
    """With a raised limit it ended the process: the limit held for all threads."""
    (tmp_path / "deep.dlm").write_text(DEEP)
    program = """
    thread = threading.Thread(target=elaborate, args=("deep.dlm",))
    thread.start()
    found = set()
    while thread.is_alive():
        found.add(tried(lambda: json.loads("[" * 99_000)))
    thread.join()
    print(*found)
    """
    assert run(program, tmp_path) == ["RecursionError"]


def test_deep_json_is_refused_where_the_program_has_raised_the_limit(tmp_path: Path) -> None:
    deep = nested(1_000_000)
    (tmp_path / "deep.safetensors.index.json").write_bytes(b'{"weight_map": ' + deep + b"}")
    header = b'{"a": ' + deep + b"}"
    (tmp_path / "deep.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    program = """
    sys.setrecursionlimit(10_000_000)
    deep = b"[" * 1_000_000 + b"]" * 1_000_000
    print(tried(lambda: canonical_json.load(deep)))
    print(tried(lambda: open_weights("deep.safetensors.index.json")))
    print(tried(lambda: open_weights("deep.safetensors")))
    """
    assert run(program, tmp_path) == ["BadJson", "ArtifactError", "ArtifactError"]


def test_brackets_in_strings_of_json_are_no_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "getrecursionlimit", lambda: 10_000_000)
    check_json_depth(json.dumps({"[" * 3_000: ["\\" * 3, '"[' * 3_000]}).encode())
    check_json_depth(b"")
    check_json_depth(nested(1_000))
    for deep in (nested(1_001), b'["\\\\", ' + nested(1_000) + b"]"):
        with pytest.raises(RecursionError):
            check_json_depth(deep)


def test_json_of_another_encoding_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors.index.json"
    path.write_bytes('{"weight_map": {}}'.encode("utf-16"))
    with pytest.raises(ArtifactError, match="it is not JSON"):
        open_weights(path)
    with pytest.raises(canonical_json.BadJson, match="not JSON"):
        canonical_json.load("{}".encode("utf-16"))


def test_calls_in_a_thread_of_their_own_have_room_and_raise_what_they_raise() -> None:
    assert called(400)
    assert not with_room(is_deep)
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 // 0)


def test_a_thread_that_the_system_does_not_start_is_refused() -> None:
    with failing(at=1), pytest.raises(InternalError) as caught:
        with_room(int)
    assert caught.value.diagnostics[0].code == "D0998"
