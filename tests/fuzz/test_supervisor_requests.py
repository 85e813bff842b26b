"""A supervisor with the compiler's sanitizers on, under whatever a host could write into its control directory."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from clotho.errors import SandboxUnavailable
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.interface import JOBS, TRANSFERS
from tests.fuzz.runner import Fuzzer, mutated
from tests.fuzz.sanitized import compiled
from tests.support import PATIENCE_SECONDS

NUMBERS = (
    "0",
    "1",
    "-1",
    "50",
    "1000",
    "9" * 15,
    "9" * 18,
    "9223372036854775807",
    "9" * 30,
    "",
    "x",
    "1e9",
    "0x7f",
)
FIELDS = ("timeout_ms", "grace_ms", "max_output", "background", "silent", "max", "steady", "known")
PATHS = ("/tmp", "/tmp/x", "x", "", "/", "..", "/nowhere", "/proc/self/mem", "/proc/self/fd/3", "/tmp/" + "n" * 300,
         "p" * 5_000, "/tmp/a\nb", "/etc/passwd", "//", "/dev/null", "/tmp/" + "d/" * 2_000)  # fmt: skip
VERBS = ("get", "put", "manifest", "pack", "unpack", "verb", "")
WORDS = ("run", "kill", "file", "input", "lease", "nothing", "")


@dataclass(frozen=True)
class Case:
    jobs: dict[str, bytes]
    files: dict[str, bytes]
    lines: tuple[bytes, ...]


def case(random: Random) -> Case:
    keys = [f"{random.getrandbits(128):032x}" for _ in range(3)]
    jobs = {key: _noisy(random, _job(random, keys)) for key in keys if random.random() < 0.6}
    files = {key: _noisy(random, _request(random, keys)) for key in keys if random.random() < 0.6}
    lines = [_line(random, keys) for _ in range(random.randint(0, 6))]
    lines += [f"run {key}".encode() for key in jobs] + [f"file {key}".encode() for key in files]
    random.shuffle(lines)
    return Case(jobs, files, tuple(lines))


def _job(random: Random, keys: list[str]) -> str:
    header = [f"identity {random.choice(('a', 'x' * 9_000, ''))}"]
    header.append(f"input {random.choice(('none', 'file', 'pipe', 'pty', '', 'x' * 100))}")
    header += [f"{random.choice(FIELDS)} {random.choice(NUMBERS)}" for _ in range(random.randint(0, 3))]
    header += [f"after {random.choice((*keys, 'x', ''))}", f"workdir {random.choice(PATHS)}"]
    return "\n".join((*header, "", "echo a; exit 7"))


def _request(random: Random, keys: list[str]) -> str:
    header = [f"verb {random.choice(VERBS)}"]
    header += [f"{random.choice(FIELDS)} {random.choice(NUMBERS)}" for _ in range(random.randint(0, 2))]
    header += [f"root {random.choice(('work', 'l' * 40, ''))} /tmp", f"after {random.choice((*keys, 'x'))}"]
    header += [f"agents {random.choice(PATHS)}"] * random.randint(0, 2)
    return "\n".join((*header, "", random.choice(PATHS)))


def _noisy(random: Random, text: str) -> bytes:
    if random.random() < 0.2:
        text = mutated(random, text, ("\n", "\n\n", " ", "\0", "root ", "agents ", "9" * 400))
    # A root beyond /tmp would have the whole host's files read.
    return text.replace("root work /\n", "").encode(errors="replace")


def _line(random: Random, keys: list[str]) -> bytes:
    words = [random.choice(WORDS), random.choice((*keys, *NUMBERS)), random.choice(keys)]
    line = " ".join(words[: random.randint(1, 3)]).encode()
    match random.randrange(8):
        case 0:
            return random.randbytes(random.randint(0, 300))
        case 1:
            return line * 50
        case 2:
            return b"x" * random.choice((4_096, 8_191, 9_000))
        case _:
            return line


def test_a_supervisor_outlives_any_request(folder: Path, tmp_path: Path, fuzzer: Fuzzer) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap isn't here")
    with supervisor(compiled(tmp_path), folder / "requests") as (control, process, logs):

        def check(made: Case) -> None:
            for key, content in made.jobs.items():
                control.stage(JOBS, key, {"job": content, "stdin": b"in", "in." + key: b"typed"})
            for key, content in made.files.items():
                control.stage(TRANSFERS, key, {"request": content, "content": b"a", "stream": b"b"})
            for line in made.lines:
                if not line.startswith((b"stop", b"seal")):
                    say(control, line)
            say(control, b"\nlease 3600")
            assert runs(control)
            assert process.poll() is None
            found = [log.read_text(errors="replace")[:3_000] for log in sorted(logs.iterdir())]
            assert found == []

        fuzzer.run(case, check)


def say(control: ControlDirectory, line: bytes) -> None:
    queue = os.open(control.path / "q", os.O_WRONLY)
    try:
        os.write(queue, line + b"\n")
    finally:
        os.close(queue)


def runs(control: ControlDirectory) -> bool:
    """Whether a command that is asked for now comes to its end."""
    key = os.urandom(16).hex()
    control.stage(JOBS, key, {"job": b"identity a\ninput none\n\nexit 3"})
    deadline = time.monotonic() + PATIENCE_SECONDS
    with suppress(SandboxUnavailable):
        control.say("run", key)
    while (done := control.text_of(f"{JOBS}/{key}/done")) is None and time.monotonic() < deadline:
        time.sleep(0.002)
    return done is not None and done.startswith("exited 3 ")


@contextmanager
def supervisor(
    program: Path, place: Path
) -> Iterator[tuple[ControlDirectory, "subprocess.Popen[bytes]", Path]]:
    """As PID 1 of a sandbox that sees the host read-only, but for its control directory."""
    logs = place / "logs"
    logs.mkdir(parents=True)
    control = ControlDirectory(place / "control", None)
    control.create()
    directory, (reader, writer) = os.open(control.path, os.O_RDONLY | os.O_DIRECTORY), os.pipe()
    isolated = [
        "bwrap",
        "--unshare-all",
        "--as-pid-1",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
    ]
    isolated += ["--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", str(program), "/tmp/supervisor"]
    isolated += ["--bind", str(logs), "/tmp/logs"]
    serve = ["/tmp/supervisor", "serve", str(directory), str(writer), "3600", "64", "1000000"]
    options = "log_path=/tmp/logs/found:detect_leaks=0"
    process = subprocess.Popen(
        [*isolated, *serve],
        env={**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": options},
        pass_fds=(directory, writer),
    )
    os.close(writer)
    try:
        assert os.read(reader, 100), "it didn't start"
        yield control, process, logs
    finally:
        os.close(reader)
        os.close(directory)
        process.kill()
        process.wait()
        shutil.rmtree(place)
