"""What starting costs: which modules are loaded for what, and how long the shortest commands take."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import dlc
from tests.cli.conftest import Command

ROOT = Path(dlc.__file__).parents[1]
COMPILER = ("llvmlite", "scipy", "typer", "onnx")
OURS = ("ir", "text", "dialects", "frontend", "passes", "lowering", "codegen", "importers")

CHECK = f"""
import sys
loaded = {{name.partition(".")[0] for name in sys.modules}} & set({COMPILER!r})
ours = {{name for name in sys.modules for part in {OURS!r} if name.startswith("dlc." + part)}}
assert not loaded and not ours, (loaded, ours)
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_loading_and_running_an_artifact_loads_nothing_of_the_compiler(
    dlc: Command, folder: Path
) -> None:
    assert dlc("compile", "rows.dlm", "--matmul", "generated").code == 0
    call = "import dlc\nmodel = dlc.load('rows.dlc')\nprint(model([[1, 2, 3]]).total)\n"
    for script in (
        call,
        "from dlc.cli import main\nassert main(['run', 'rows.dlc', '--random-inputs', '0']) == 0\n",
        "import dlc\nassert dlc.Tensor and dlc.DlcError and dlc.Model\n",
    ):
        done = run(script + CHECK, folder)
        assert done.returncode == 0, done.stderr


def test_an_artifact_runs_without_the_compiler_however_its_options_are_written(
    dlc: Command, folder: Path
) -> None:
    assert dlc("compile", "rows.dlm", "--matmul", "generated").code == 0
    script = (
        "from dlc.cli import main\n"
        "assert main(['run', 'rows.dlc', '--random-inputs=0', '--threads=1']) == 0\n"
        "assert not {'llvmlite', 'dlc.driver.run.request', 'dlc.lowering'} & set(sys.modules)\n"
    )
    done = run(script, folder)
    assert done.returncode == 0, done.stderr


def test_a_text_is_compiled_without_the_importers_of_other_formats(folder: Path) -> None:
    script = (
        "from dlc.cli import main\nimport sys\n"
        "assert main(['compile', 'rows.dlm']) == 0\n"
        "assert not {'dlc.importers.onnx', 'dlc.importers.torch', 'dlc.export'} & set(sys.modules)\n"
    )
    done = run(script, folder)
    assert done.returncode == 0, done.stderr


def test_the_version_is_said_without_numpy(folder: Path) -> None:
    script = (
        "from dlc.cli import main\nassert main(['--version']) == 0\n"
        "assert 'numpy' not in sys.modules\n"
    )
    done = run(script + CHECK, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("dlc ")


def best_ms(script: str, folder: Path, times: int = 7) -> float:
    """Milliseconds of processor time, in the best of several fresh processes: other load adds nothing."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def once() -> float:
        before = spent()
        assert run(script, folder).returncode == 0
        return spent() - before

    return min(once() for _ in range(times)) * 1e3


@pytest.mark.long
def test_the_version_takes_150_ms_and_a_small_run_300_ms(dlc: Command, folder: Path) -> None:
    assert dlc("compile", "rows.dlm").code == 0
    main = "from dlc.cli import main\nmain"
    version = best_ms(f"{main}(['--version'])", folder)
    small = best_ms(f"{main}(['run', 'rows.dlc', '--random-inputs', '0'])", folder)
    print(f"dlc --version {version:.0f} ms, dlc run rows.dlc {small:.0f} ms")
    assert version < 150
    assert small < 300
