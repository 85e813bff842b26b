"""How processes end: with their status, whatever the interpreter's shutdown would wait for."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import PATIENCE_SECONDS

WAITED_FOR = """
import atexit, signal

class Unending:
    def __del__(self):
        signal.pause()

kept = Unending()
atexit.register(print, "told at the end")
"""
"""A program that would not end: the SDK's native threads can do the like to the interpreter."""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", WAITED_FOR + program]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("return 3", 3, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(4)", 4, ""),
        ("raise SystemExit('in words')", 1, "in words\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
        ("raise ZeroDivisionError('unknown')", 1, "ZeroDivisionError: unknown\n"),
    ],
)
def test_a_program_ends_as_the_interpreter_would_end_it(body: str, status: int, said: str) -> None:
    end = ended(
        f"def program():\n {body}\nfrom clotho.processes.ending import run_to_end\nrun_to_end(program)"
    )
    assert (end.returncode, end.stdout) == (status, "told at the end\n")
    assert end.stderr.endswith(said)


def test_the_adapter_ends_so() -> None:
    end = ended(
        "from clotho.plugins.atropos.key_options import Secrets\n"
        "from clotho.plugins.atropos.main import main\n"
        "class Kind:\n secrets = Secrets()\n"
        "def cli():\n raise SystemExit(0)\n"
        "main(Kind, cli)"
    )
    assert (end.returncode, end.stdout) == (0, "told at the end\n"), end.stderr


def test_output_that_cannot_be_written_is_a_failure() -> None:
    program = "from clotho.processes.ending import run_to_end\nrun_to_end(lambda: print('lost') or 0)"
    with Path("/dev/full").open("w") as full:
        end = subprocess.run(
            [sys.executable, "-c", program], stdout=full, timeout=PATIENCE_SECONDS, check=False
        )
    assert end.returncode == 1


def test_an_error_comes_after_what_was_said_before_it(tmp_path: Path) -> None:
    program = (
        "from clotho.processes.ending import run_to_end\n"
        "def program():\n print('result')\n raise ZeroDivisionError('unknown')\n"
        "run_to_end(program)"
    )
    with (tmp_path / "log").open("w") as log:
        subprocess.run(
            [sys.executable, "-c", program], stdout=log, stderr=log, timeout=PATIENCE_SECONDS, check=False
        )
    lines = (tmp_path / "log").read_text().splitlines()
    assert (lines[0], lines[-1]) == ("result", "ZeroDivisionError: unknown")
