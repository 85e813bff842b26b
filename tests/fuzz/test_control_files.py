"""Whatever a supervisor's control directory holds, the host reads it, or says which sandbox is lost."""

import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random

from clotho.errors import CommandConflict, SandboxLost
from clotho.sandbox.backend import Job
from clotho.sandbox.checkpoints import ShellState
from clotho.sandbox.exhaustion import Usage
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.jobs import Jobs
from clotho.sandbox.supervised.transfers import Transfers
from tests.fuzz.runner import Fuzzer
from tests.sandbox.control_files import INCARNATION, KEY, OTHER, WHOLE, Case, alive

CONTENTS = (
    b"",
    b"\n",
    b"\0",
    b"\xff\xfe",
    b"-1",
    b"exited",
    b"exited 0",
    b"exited zero 5\n",
    b"exited 0 -5\n",
    b"exited 99999999999999999999 5\n",
    b"exited 0 99999999999999999999\n",
    b"exited 0 " + b"9" * 5_000,
    b"vanished 0 5\n",
    b"absent 0 0\n",
    b"running 0 5\n",
    "exited ٣ ²\n".encode(),
    b"ok",
    b"ok -5\n/work",
    b"ok --5\n/work",
    "ok ²\n/work".encode(),
    b"ok " + b"9" * 5_000,
    b"\xff 5\n\xff",
    b"disks",
    b"1 2 3",
    b"one two",
    b"x" * 70_000,
    b"session \xff\n\n\xff",
    b"identity\n\n",
)
NAMES = (
    "c/x",
    f"c/.{KEY}",
    "c/\udcff",
    "f/" + "x" * 255,
    "sessions/" + "x" * 200,
    f"sessions/{OTHER}",
    "sessions/\udcff",
)


def case(random: Random) -> Case:
    files = dict(WHOLE)
    folders: list[str] = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        name = random.choice(list(files))
        match random.randrange(6):
            case 0:
                del files[name]
            case 1:
                files[name] = files[name][: random.randint(0, len(files[name]))]
            case 2 if len(files) > 1:
                folders.append(name)
                del files[name]
            case 3:
                files[random.choice(NAMES)] = random.choice(CONTENTS)
            case 4:
                files[name] = random.randbytes(random.randint(1, 40))
            case _:
                files[name] = random.choice(CONTENTS)
        if not files:
            break
    return Case(files, tuple(folders))


def test_any_control_directory_is_read_or_its_sandbox_is_lost(tmp_path: Path, fuzzer: Fuzzer) -> None:
    numbers = itertools.count()

    def check(made: Case) -> None:
        path = tmp_path / str(next(numbers))
        with alive(path, made) as control:
            for read in readings(control):
                try:
                    read()
                except (SandboxLost, CommandConflict):
                    continue

    fuzzer.run(case, check)


def readings(control: ControlDirectory) -> list[Callable[[], object]]:
    jobs, transfers = Jobs(control), Transfers(control)
    job = Job(key=KEY, script="echo hello", session="web")
    shell = ShellState(job=KEY, cwd="/work", exports="", workspace="/work")
    return [
        control.incarnation,
        control.was_started,
        control.sealed,
        jobs.started_keys,
        lambda: jobs.status(KEY, INCARNATION),
        lambda: jobs.output(KEY, 0, 1_000),
        lambda: jobs.output(KEY, 3, 1_000),
        lambda: jobs.usage_before(KEY),
        lambda: jobs.settled(KEY),
        lambda: jobs.settle(KEY, "memory"),
        lambda: list(jobs.sessions(INCARNATION)),
        lambda: jobs.kept_sessions(INCARNATION),
        lambda: jobs.shell_state(KEY, "/work"),
        lambda: jobs.submit(job, Usage(0, 0)),
        lambda: jobs.stage_shell(shell, "/work"),
        transfers.written_keys,
        lambda: transfers.answer(OTHER),
        lambda: transfers.content(OTHER, 5),
        lambda: transfers.forget(OTHER),
    ]
