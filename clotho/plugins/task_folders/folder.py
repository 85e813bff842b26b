"""A task folder as it lies on disk: its file, its instruction, its tests, its solution, and what it runs in."""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BufferedIOBase, BytesIO
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from pydantic import ValidationError

from clotho.errors import InvalidInput
from clotho.plugins.task_folders.compose import Service, read_compose
from clotho.plugins.task_folders.task_file import NetworkMode, TaskFile, known_keys
from clotho.plugins.task_folders.unsupported import unsupported
from clotho.templates import Lookup, resolved
from clotho.untrusted import Unreadable, load_toml

DOWNLOADS = re.compile(r"^[^#\n]*\b(apt-get|apt|apk|pip3?|uvx?|curl|wget|npm|conda)\s+\S", re.MULTILINE)
LARGEST_TEXT = 1 << 20
"""Bytes of task.toml, and of instruction.md."""
COPIED = ("tests", "solution", "environment")
LARGEST_FILES = 64 << 20
"""Bytes of tests or of a solution, which are copied into each sandbox."""


@dataclass(frozen=True)
class TaskFiles:
    """Files below a folder of the task, by their path in it; links followed."""

    content: Mapping[str, bytes]
    executable: frozenset[str]


@dataclass(frozen=True)
class Task:
    """A task that Clotho can roll out; `read_task` makes one, and refuses what it couldn't honour."""

    path: Path
    name: str
    file: TaskFile
    instruction: str
    service: Service | None
    """The one of docker-compose.yaml, if there is one."""
    sums: Mapping[str, str]
    """Mode and hash of each file, by path: no method gives another content."""
    readable: tuple[str, ...] | None = None
    """The workers' variables that its own may be made of; None: any."""

    @property
    def tests(self) -> TaskFiles:
        return self._files("tests")

    @property
    def solution(self) -> TaskFiles | None:
        """None where the task has none."""
        return self._files("solution") if "solution/solve.sh" in self.sums else None

    @property
    def image(self) -> str | None:
        """None: it is built from `environment/Dockerfile`."""
        return self.file.environment.docker_image or (self.service.image if self.service else None)

    @property
    def grading_dockerfile(self) -> Path | None:
        """The Dockerfile of the image in which the task is graded, if it has one of its own."""
        named = self.grading_image is not None
        return self.path / "tests" / "Dockerfile" if not named and "tests/Dockerfile" in self.sums else None

    @property
    def grading_image(self) -> str | None:
        return self.file.verifier.environment.docker_image if self.file.verifier.environment else None

    @property
    def bundles_tests(self) -> bool:
        """Whether it is graded by the tests that its verifier's image has."""
        return self.file.verifier.separate and bool(self.grading_image or self.grading_dockerfile)

    @property
    def workdir(self) -> str | None:
        """None: the image's."""
        asked = self.file.environment.workdir or (self.service.working_dir if self.service else None)
        return None if asked is None else asked.rstrip("/") or "/"

    @property
    def dockerfile_workdir(self) -> str | None:
        """The last working directory that the Dockerfile names; None where it names none, or uses a variable."""
        if self.image is not None:
            return None
        text = _text(self.path / "environment" / "Dockerfile").replace("\\\n", " ")
        found: str | None = None
        for line in text.splitlines():
            instruction, _, argument = line.strip().partition(" ")
            argument = argument.strip().strip("\"'")
            if instruction.upper() == "FROM":
                # the working directory of the base image isn't known here
                found = None
            elif instruction.upper() == "WORKDIR":
                known = argument.startswith("/") or found is not None
                found = normpath(join(found or "/", argument)) if known and "$" not in argument else None
        return found

    @property
    def user(self) -> str | None:
        """The user of commands, by name or id; None: the image's."""
        return self.file.agent.user or (self.service.user if self.service else None)

    @property
    def network(self) -> NetworkMode | None:
        """None where neither file says anything."""
        if self.file.agent_network is None and self.service is not None and self.service.network_mode:
            return "no-network"
        return self.file.agent_network

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of every command, unresolved."""
        service = self.service.environment if self.service else {}
        return {**service, **self.file.environment.env}

    @property
    def workdir_files(self) -> TaskFiles:
        """Files of `environment/` that are put into the working directory of a task with nothing but an image."""
        folder = self.path / "environment"
        if any((folder / name).exists() for name in ("Dockerfile", "docker-compose.yaml")):
            return TaskFiles({}, frozenset())
        return self._files("environment")

    @property
    def downloads(self) -> tuple[str, ...]:
        """Programs by which tests/test.sh downloads, which needs a network and makes grading depend on it."""
        found = DOWNLOADS.findall(self.tests.content.get("test.sh", b"").decode(errors="replace"))
        return tuple(dict.fromkeys(found))

    @cached_property
    def digest(self) -> str:
        """Identity of the task's content: names, modes and bytes of its files."""
        digest = hashlib.sha256()
        for name, content in self.sums.items():
            digest.update(f"{name}\0{content}\n".encode())
        return digest.hexdigest()

    def _files(self, folder: str) -> TaskFiles:
        """Raises InvalidInput where they aren't what they were when the task was read."""
        root = self.path / folder
        content = {str(path.relative_to(root)): path.read_bytes() for path in _walk(root, self.path)}
        runs = frozenset(name for name in content if _runs(root / name))
        sums = {f"{folder}/{name}": _sum(BytesIO(each), name in runs) for name, each in content.items()}
        if sums != {name: each for name, each in self.sums.items() if name.startswith(f"{folder}/")}:
            raise InvalidInput(f"{folder}/ of task {self.name} has changed since it was read")
        return TaskFiles(content, runs)


def read_task(path: Path, variable: Lookup, readable: tuple[str, ...] | None = None) -> Task:
    """The task in folder `path`; raises InvalidInput that names the folder and everything wrong with it.

    `variable` looks up the environment variables that the task's own are made of, as far as they are `readable`.
    """
    try:
        return _read(path, variable, readable)
    except InvalidInput as error:
        raise InvalidInput(f"task {path.name}: {error}") from error


def _read(path: Path, variable: Lookup, readable: tuple[str, ...] | None) -> Task:
    sums = _sums(path)  # first: from here on no link leads out of the task
    file = _task_file(path / "task.toml")
    if faults := [*unsupported(file), *_missing(path, file)]:
        raise InvalidInput("; ".join(faults))
    compose = path / "environment" / "docker-compose.yaml"
    service = read_compose(compose) if compose.is_file() else None
    name = file.task.name if file.task is not None else path.name
    task = Task(path, name, file, instruction_of(_text(path / "instruction.md")), service, sums, readable)
    if not task.instruction.strip():
        raise InvalidInput("instruction.md says nothing")
    if task.image is None and not (path / "environment" / "Dockerfile").is_file():
        raise InvalidInput("environment/ has no Dockerfile, and no image is named")
    # only to refuse a task that lacks one: values are looked up again where they are used, and kept nowhere
    for where, values in (
        ("environment.env", file.environment.env),
        ("verifier.env", file.verifier.env),
        ("verifier.environment.env", file.verifier.environment.env if file.verifier.environment else {}),
        ("solution.env", file.solution.env),
    ):
        resolved(values, where, variable, readable)
    return task


def instruction_of(text: str) -> str:
    """The instruction without the canary lines that it begins with, and the blank lines after them."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _is_canary(lines[start]):
        start += 1
    if start:
        while start < len(lines) and not lines[start].strip():
            start += 1
    return "\n".join(lines[start:])


def _is_canary(line: str) -> bool:
    # as Harbor cuts them: a title `# Canary deploy` goes, too
    text = line.strip().lower()
    return "canary" in text and (text.startswith("#") or (text.startswith("<!--") and text.endswith("-->")))


def _task_file(path: Path) -> TaskFile:
    try:
        content = load_toml(_text(path))
    except Unreadable as error:
        raise InvalidInput(f"task.toml isn't TOML: {error}") from error
    try:
        return TaskFile.model_validate(content)
    except ValidationError as error:
        raise InvalidInput(
            "; ".join(dict.fromkeys(_fault(each, content) for each in error.errors()))
        ) from error


def _fault(error: Mapping[str, Any], content: Any) -> str:
    keys = _keys_of(error["loc"], content)
    name = ".".join(map(str, keys or ("task.toml",)))
    if error["type"] != "extra_forbidden":
        return f"{name}: {error['msg'].removeprefix('Value error, ')}"
    *path, last = keys
    near = difflib.get_close_matches(str(last), known_keys(tuple(path)), n=1)
    return f"{name}: unknown key" + (f"; did you mean {near[0]}?" if near else "")


def _keys_of(location: tuple[str | int, ...], content: Any) -> list[str | int]:
    """The keys of a fault as the file has them: without pydantic's names for alternatives of a type."""
    keys: list[str | int] = []
    for at, part in enumerate(location):
        # pydantic names schema_version by its alias
        if part == "version" and isinstance(content, dict) and part not in content:
            part = "schema_version"
        in_table = isinstance(content, dict) and part in content
        if in_table or (isinstance(content, list) and isinstance(part, int) and part < len(content)):
            content = content[part]
        elif not (isinstance(content, dict) and at == len(location) - 1):
            continue  # else a key that is missing, which is named too
        keys.append(part)
    return keys


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
        if len(content) > LARGEST_TEXT:
            raise InvalidInput(f"{path.name} has more than {LARGEST_TEXT >> 20} MiB")
        return content.decode()
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no {path.name}") from error
    except (UnicodeDecodeError, OSError) as error:
        raise InvalidInput(f"{path.name} can't be read as UTF-8 text") from error


def _missing(path: Path, file: TaskFile) -> Iterator[str]:
    test = path / "tests" / "test.sh"
    grading = file.verifier.environment
    bundled = (path / "tests" / "Dockerfile").is_file() or bool(grading and grading.docker_image)
    if not test.is_file():
        if not (file.verifier.separate and bundled):
            yield "there is no tests/test.sh"
    elif test.read_bytes().partition(b"\n")[0].endswith(b"\r"):
        yield "tests/test.sh: its first line ends in CR LF, so that no interpreter has its name"
    if file.verifier.separate and (path / "tests" / "docker-compose.yaml").is_file():
        yield "tests/docker-compose.yaml: a verifier has one container"
    if not (path / "environment").is_dir() and file.environment.docker_image is None:
        yield "there is neither environment/ nor environment.docker_image"
    for name, why in (
        ("trajectory.json", "agents can't continue another one's work"),
        (".harborignore", "all files of tests/ and solution/ are taken"),
    ):
        if next(path.rglob(name), None) is not None:
            yield f"{name}: {why}"


def _sums(task: Path) -> dict[str, str]:
    """Checksums of all files, links followed.

    Raises InvalidInput for links that lead out of the task or round in circles, and for too many bytes.
    """
    sizes: Counter[str] = Counter()
    sums = {}
    for path in sorted(_walk(task, task)):
        name = path.relative_to(task)
        sizes[name.parts[0]] += path.stat().st_size
        if name.parts[0] in COPIED and sizes[name.parts[0]] > LARGEST_FILES:
            raise InvalidInput(f"{name.parts[0]}/ has more than {LARGEST_FILES >> 20} MiB")
        with path.open("rb") as file:
            sums[str(name)] = _sum(file, _runs(path))
    return sums


def _sum(content: BufferedIOBase, runs: bool) -> str:
    return ("x" if runs else "-") + hashlib.file_digest(content, "sha256").hexdigest()


def _runs(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o100)


def _walk(folder: Path, task: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    if not folder.is_dir():
        return
    real = folder.resolve()
    if real in above:
        raise InvalidInput(f"{folder.relative_to(task)}: the link leads round in a circle")
    for path in sorted(folder.iterdir()):
        name = path.relative_to(task)
        if not path.resolve().is_relative_to(task.resolve()):
            raise InvalidInput(f"{name}: the link leads out of the task")
        if path.is_dir():
            yield from _walk(path, task, (*above, real))
        elif path.is_file():
            yield path
        else:
            raise InvalidInput(f"{name}: neither a file nor a folder")
