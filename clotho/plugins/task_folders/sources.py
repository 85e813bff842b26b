"""Sources of tasks: a folder, a git repository at a commit, or a set in a registry file.

What is fetched is fetched once, into the cache folder of the host.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from clotho.config import cache_folder, environment_without
from clotho.errors import InvalidInput, Unavailable
from clotho.frozen_model import FrozenModel

ENVIRONMENT = "task_folders"
"""The environment that makes items of task folders."""
REPOSITORY = re.compile(r"(?P<url>(?:https|ssh|file)://[^\s#]+)@(?P<commit>[^@#/]*)(?:#(?P<folder>.+))?")
REGISTRY = re.compile(r"(?P<file>.+\.json)#(?P<name>[^@]+)(?:@(?P<version>.+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
SECONDS = 1_800
SAID = 500
LARGEST_REGISTRY = 64 << 20
"""Bytes of a registry file."""
MARKS = ("task.toml", "instruction.md", "tests", "environment")
"""Files of which a folder that means to be a task has at least one."""


class RegistryTask(FrozenModel, extra="ignore"):
    path: str
    git_url: str | None = None
    git_commit_id: str | None = None


class RegistrySet(FrozenModel, extra="ignore"):
    name: str
    version: str
    tasks: tuple[RegistryTask, ...]


SETS: TypeAdapter[tuple[RegistrySet, ...]] = TypeAdapter(tuple[RegistrySet, ...])


def absolute_source(source: str) -> str:
    """`source` with an absolute path, for workers that start in another folder."""
    if REPOSITORY.fullmatch(source):
        return source
    file, mark, name = source.partition(".json#")
    return f"{Path(f'{file}.json' if mark else file).expanduser().resolve()}{'#' * bool(mark)}{name}"


def environment_of(source: str) -> tuple[str, dict[str, JsonValue]]:
    """The environment of the tasks at `source`, and its configuration."""
    return ENVIRONMENT, {"path": absolute_source(source)}


def task_folders(source: str) -> list[Path]:
    """The folders of the tasks of `source`, fetched where they aren't here yet.

    Raises InvalidInput for what isn't there, Unavailable for a repository that can't be reached.
    """
    if (repository := REPOSITORY.fullmatch(source)) is not None:
        checkout = _checkout(repository["url"], repository["commit"])
        found = _folders(_inside(checkout, repository["folder"] or "."), source)
        for task in found:  # a link among them may lead anywhere on this host
            _inside(checkout, str(task))
        return found
    if (registry := REGISTRY.fullmatch(source)) is not None:
        return _of_registry(Path(registry["file"]), registry["name"], registry["version"])
    return _folders(Path(source), source)


def _folders(path: Path, source: str) -> list[Path]:
    """The folder itself, or those below it that mean to be tasks."""
    if not path.is_dir():
        raise InvalidInput(f"tasks {source}: there is no such folder")
    if (path / "task.toml").is_file():
        return [path]
    children = (child for child in sorted(path.iterdir()) if child.is_dir())
    found = [child for child in children if any((child / mark).exists() for mark in MARKS)]
    if not found:
        raise InvalidInput(f"tasks {source}: no folder in it has a task.toml")
    return found


def _of_registry(file: Path, name: str, version: str | None) -> list[Path]:
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_REGISTRY + 1)
        if len(content) > LARGEST_REGISTRY:
            raise InvalidInput(f"registry {file} has more than {LARGEST_REGISTRY >> 20} MiB")
        sets = SETS.validate_json(content)
    except OSError as error:
        raise InvalidInput(f"registry {file}: {error.strerror}") from error
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_input=False)
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"registry {file}: {where}: {first['msg']}") from error
    found = [each for each in sets if each.name == name and version in (None, each.version)]
    if len(found) != 1:
        there = ", ".join(f"{each.name}@{each.version}" for each in found or sets)
        raise InvalidInput(f"registry {file}: give one set as NAME@VERSION, of: {there}")
    return [_registered(task, file) for task in found[0].tasks]


def _registered(task: RegistryTask, file: Path) -> Path:
    if task.git_url is None:
        return _inside(file.parent, task.path, f"the folder of registry {file.name}")
    return _inside(_checkout(task.git_url, task.git_commit_id or ""), task.path)


def _inside(root: Path, path: str, named: str = "its repository") -> Path:
    folder = (root / path).resolve()
    if not folder.is_relative_to(root.resolve()):
        raise InvalidInput(f"{path} leads out of {named}")
    return folder


def _checkout(url: str, commit: str) -> Path:
    """The files of a repository at a commit."""
    # hosts fetch at different times: a branch could be another commit on each
    if COMMIT.fullmatch(commit) is None:
        raise InvalidInput(f"{url}: give a commit of 40 hexadecimal digits after an @, not {commit!r}")
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    kept = cache_folder() / "tasks" / name / commit
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix="unfinished-") as unfinished:
            fetched = Path(unfinished) / "checkout"
            _git(url, ["clone", "--quiet", "--no-checkout", "--filter=blob:none", "--", url, str(fetched)])
            _git(url, ["-C", str(fetched), "checkout", "--quiet", "--detach", commit])
            shutil.rmtree(fetched / ".git")
            try:
                # renamed once it is whole: a fetch that dies leaves no folder that others take for it
                fetched.rename(kept)
            except OSError:
                if not kept.is_dir():  # else another process was first
                    raise
    return kept


def _git(url: str, words: Iterable[str]) -> None:
    # a private repository fails instead of waiting for a password; git's ext:: URLs would run commands
    variables = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:file"}
    try:
        done = subprocess.run(
            ["git", *words],
            env={**environment_without(()), **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except FileNotFoundError as error:
        raise InvalidInput(f"{url}: there is no git on this host") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{url}: not fetched within {SECONDS} s") from error
    if done.returncode:
        said = " ".join(done.stderr.split())[-SAID:]
        kind = Unavailable if re.search(r"could not resolve|timed out|connect", said, re.I) else InvalidInput
        raise kind(f"{url}: {said}")
