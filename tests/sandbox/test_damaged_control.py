"""Control files that can't be what was written: the sandbox is lost, typed, and nothing is made of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clotho.errors import SandboxLost
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.jobs import Jobs
from clotho.sandbox.supervised.transfers import Transfers
from tests.sandbox.control_files import INCARNATION, KEY, OTHER, WHOLE, Case, alive

Reading = Callable[[Jobs, Transfers], object]


def status(jobs: Jobs, _: Transfers) -> object:
    return jobs.status(KEY, INCARNATION)


DAMAGED: dict[str, tuple[str, bytes | None, Reading]] = {
    "a result of no state": ("done", b"vanished 0 5\n", status),
    "a result that never ends": ("done", b"running 0 5\n", status),
    "a result with a size of letters": ("done", "exited 0 ²\n".encode(), status),
    "a result with a negative size": ("done", b"exited 0 -5\n", status),
    "a result of thousands of digits": ("done", b"exited 0 " + b"9" * 5_000 + b"\n", status),
    "a result that is a folder": ("done", None, status),
    "a process of no number": ("pid", b"\xff\n", status),
    "counters of words": ("usage", b"one two", lambda jobs, _: jobs.usage_before(KEY)),
    "too few counters": ("usage", b"1", lambda jobs, _: jobs.usage_before(KEY)),
    "a resource that there isn't": ("exhausted", b"patience", lambda jobs, _: jobs.settled(KEY)),
    "a command without an identity": ("job", b"\xff\n\n", lambda jobs, _: jobs.kept_sessions(INCARNATION)),
    "an output that is a folder": ("out", None, lambda jobs, _: jobs.output(KEY, 0, 9)),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_a_damaged_file_of_a_job_is_a_lost_sandbox(tmp_path: Path, fault: str) -> None:
    name, content, read = DAMAGED[fault]
    file = f"c/{KEY}/{name}"
    files = {**WHOLE, **({} if content is None else {file: content})}
    if content is None:
        del files[file]
    folders = (file,) if content is None else ()
    lost = pytest.raises(SandboxLost, match=f"{KEY}/{name} is damaged")
    with alive(tmp_path / "control", Case(files, folders)) as control, lost:
        read(Jobs(control), Transfers(control))


@pytest.mark.parametrize("answer", ["ok ²", "ok --5", "ok " + "9" * 5_000, "ok -1", "\udcff 5", "ok"])
def test_an_answer_of_no_number_is_none_that_could_be_used(tmp_path: Path, answer: str) -> None:
    files = {**WHOLE, f"f/{OTHER}/done": f"{answer}\n/work/file".encode(errors="surrogateescape")}
    with alive(tmp_path / "control", Case(files, ())) as control:
        assert Transfers(control).answer(OTHER) == ("unavailable", 0, "")


def test_a_file_that_is_shorter_than_was_told_is_not_passed_on(tmp_path: Path) -> None:
    with alive(tmp_path / "control", Case(WHOLE, ())) as control:
        assert Transfers(control).content(OTHER, 5) == b"hello"
        with pytest.raises(SandboxLost, match="content is damaged"):
            Transfers(control).content(OTHER, 6)


def test_the_largest_size_that_a_file_can_have_is_a_size(tmp_path: Path) -> None:
    files = {**WHOLE, f"f/{OTHER}/done": b"too_large 9223372036854775807\n"}
    with alive(tmp_path / "control", Case(files, ())) as control:
        assert Transfers(control).answer(OTHER) == ("too_large", 2**63 - 1, "")


def test_names_that_are_no_keys_are_nobodys(tmp_path: Path) -> None:
    strange = {
        f"{folder}/{name}": b"" for folder in ("c", "f", "sessions") for name in ("x", "\udcff", "0" * 31)
    }
    with alive(tmp_path / "control", Case({**WHOLE, **strange}, ())) as control:
        assert Jobs(control).started_keys() == [KEY]
        assert Transfers(control).written_keys() == [OTHER]
        assert [session.key for session in Jobs(control).sessions(INCARNATION)] == [KEY]


def test_an_incarnation_of_no_text_is_another_one(tmp_path: Path) -> None:
    with alive(tmp_path / "control", Case({**WHOLE, "alive": b"\xff\xfe"}, ())) as control:
        assert isinstance(control, ControlDirectory)
        assert control.incarnation() not in (None, INCARNATION)
