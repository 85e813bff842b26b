"""Verdicts of real task folders beside a plain container's: `python -m tests.real_tasks FOLDER … --base IMAGE`.

Not part of the suite: it needs folders of tasks, and a container engine (DOCKER_HOST). Every task below a FOLDER
with a solution is copied, and its image built from its own Dockerfile with two stand-ins: `--base`, a local
image, for the one that it names, and nothing for the instructions that download. A plain container of that image
then runs the solution and the tests as `docker exec` would, without a network, and so does Clotho. One table says
which verdicts differ, and another counts those of each FOLDER.
"""

import argparse
import io
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from clotho.config import variable
from clotho.errors import ClothoError, InvalidInput, VerificationFailed
from clotho.plugins.task_folders.folder import Task, read_task
from clotho.plugins.task_folders.grading import REWARDS
from clotho.plugins.task_folders.rewards import parse_rewards, score_of
from clotho.plugins.task_folders.sandboxes import check_sandbox
from clotho.templates import resolved
from clotho.testing import sandboxed_context
from environments.task_folders import TaskFolders, TaskFoldersConfig

DOWNLOADS = r"RUN\b.*\b(apt-get|apt|apk|pip3?|uvx?|curl|wget|npm|conda|git clone)\b"
OTHER_IMAGE = re.compile(r"^COPY\s+--from=\S*[/:]")
KEYS = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN")
"""Variables that public tasks name; here they are empty."""


@dataclass(frozen=True)
class Row:
    task: str
    plain: dict[str, str]
    ours: dict[str, str]
    note: str = ""

    @property
    def alike(self) -> bool:
        return self.plain == self.ours


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--base", required=True, help="a local image in place of those that Dockerfiles name")
    parser.add_argument("--match", default="", help="only tasks whose path has this in it")
    parser.add_argument("--limit", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--verify-in", choices=("image", "container"), default="image")
    parser.add_argument(
        "--leave-out", default=DOWNLOADS, help="instructions of Dockerfiles that are left out"
    )
    given = parser.parse_args()
    compared_in: dict[str, list[Row]] = {}
    say("| task | oracle, plain | oracle | nop, plain | nop | |\n|---|---|---|---|---|---|")
    for root in given.folders:
        rows = compared_in[root.resolve().name] = []
        compare_all(root, rows, given)
    say("\n| tasks of | compared | as in a plain container | their oracle earns 1 | not comparable |")
    say("|---|---|---|---|---|")
    for name, rows in compared_in.items():
        say(counts_of(name, rows))
    return int(any(row.plain and not row.alike for rows in compared_in.values() for row in rows))


def compare_all(root: Path, rows: list[Row], given: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="real-tasks-") as work,
        ThreadPoolExecutor(given.at_once) as threads,
    ):
        found = [each for each in folders(root) if given.match in str(each)][: given.limit]
        copies = [Path(work) / f"{number:03}-{each.name}" for number, each in enumerate(found)]
        for row in threads.map(
            lambda pair: compared(pair[0], pair[1], given), zip(found, copies, strict=True)
        ):
            rows.append(row)
            say(line_of(row))


def counts_of(name: str, rows: list[Row]) -> str:
    graded = [row for row in rows if row.plain]
    solved = sum(row.plain["oracle"] == "1" for row in graded)
    alike = sum(row.alike for row in graded)
    return f"| {name} | {len(graded)} | {alike} | {solved} | {len(rows) - len(graded)} |"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def folders(root: Path) -> Iterator[Path]:
    for file in sorted(root.rglob("task.toml")):
        if (file.parent / "solution" / "solve.sh").is_file() and (
            file.parent / "tests" / "test.sh"
        ).is_file():
            yield file.parent


def compared(source: Path, copy: Path, given: argparse.Namespace) -> Row:
    try:
        task = stood_in(source, copy, given.base, re.compile(given.leave_out, re.DOTALL))
        image = built(task)
    except (ClothoError, docker.errors.DockerException) as error:
        return Row(source.name, {}, {}, note=" ".join(str(error).split())[-120:])
    config = {"path": str(copy), "variables": KEYS, "verify_in": given.verify_in}
    plain = {
        agent: shown(lambda agent=agent: in_plain_container(task, image, agent))
        for agent in ("oracle", "nop")
    }
    ours = {agent: shown(lambda agent=agent: in_clotho(config, agent)) for agent in ("oracle", "nop")}
    return Row(source.name, plain, ours)


def stood_in(source: Path, copy: Path, base: str, left_out: re.Pattern[str]) -> Task:
    """The copied task, whose Dockerfile begins from the stand-in."""
    shutil.copytree(source, copy, symlinks=True)
    file = copy / "environment" / "Dockerfile"
    if file.is_file():
        text = re.sub(r"^(FROM)\s+\S+", rf"\1 {base}", file.read_text(), flags=re.MULTILINE)
        instructions = re.split(r"(?<!\\)\n", text.replace("\\\n", "\\\n"))
        kept = [each for each in instructions if not (left_out.match(each) or OTHER_IMAGE.match(each))]
        file.write_text("\n".join(kept))
    task = read_task(copy, lambda name: "" if name in KEYS else None, KEYS)
    check_sandbox(task)
    if task.file.verifier.separate:
        raise InvalidInput("it has a separate verifier, which a plain container isn't")
    return task


def built(task: Task) -> str:
    client = docker.from_env(timeout=600)
    if task.image is not None:
        return str(client.images.get(task.image).id)
    image, _ = client.images.build(
        path=str(task.path / "environment"), rm=True, forcerm=True, network_mode="none"
    )
    return str(image.id)


def shown(verdict: Any) -> str:
    """A score, or that there is none, and why."""
    try:
        return f"{verdict():.4g}"
    except VerificationFailed:
        return "none"
    except Exception as error:
        return f"failed: {' '.join(str(error).split())[:80]}"


# ---- a plain container ----


def in_plain_container(task: Task, image: str, agent: str) -> float:
    """As `docker run` with `sleep`, `docker cp` and `docker exec` give it."""
    client = docker.from_env(timeout=1_200)
    environment = resolved(task.variables, "environment.env", lambda name: "" if name in KEYS else None)
    box = client.containers.create(
        image, entrypoint=[], command=["sleep", "infinity"], environment=environment, user=task.user,
        network_mode="none", working_dir=task.workdir,
    )  # fmt: skip
    try:
        box.start()
        execute(box, "mkdir -p /logs/agent /logs/verifier /logs/artifacts; chmod 777 /logs /logs/*", "root")
        if agent == "oracle" and (solution := task.solution) is not None:
            box.put_archive("/", archive("solution", dict(solution.content)))
            execute(box, "(/solution/solve.sh) > /logs/agent/oracle.txt 2>&1", env=task.file.solution.env)
        box.put_archive("/", archive("tests", dict(task.tests.content)))
        variables = resolved(
            task.file.verifier.env, "verifier.env", lambda name: "" if name in KEYS else None
        )
        seconds = task.file.verifier.timeout_sec
        execute(
            box, f"timeout {seconds:g} /tests/test.sh > /logs/verifier/test-stdout.txt 2>&1", env=variables
        )
        return score_of(parse_rewards(*(content_of(box, path) for path in REWARDS)))
    finally:
        box.remove(force=True, v=True)


def execute(box: Any, command: str, user: str = "", env: dict[str, str] | None = None) -> None:
    box.exec_run(["bash", "-c", command], user=user, environment=env or {})


def archive(folder: str, files: dict[str, bytes]) -> bytes:
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return to.getvalue()


def content_of(box: Any, path: str) -> bytes | None:
    try:
        chunks, _ = box.get_archive(path)
    except docker.errors.NotFound:
        return None
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        member = tar.next()
        opened = None if member is None else tar.extractfile(member)
        return None if opened is None else opened.read()


# ---- Clotho ----


def in_clotho(config: dict[str, Any], agent: str) -> float:
    environment = TaskFolders(TaskFoldersConfig.model_validate(config))
    with sandboxed_context(environment) as task:
        if agent == "oracle":
            solution = environment.solution(task.item)
            for path, content in solution.files.items():
                task.agent.write_bytes(path, content if isinstance(content, bytes) else content.encode())
            task.agent.terminal(solution.command, timeout=solution.seconds or 3_600)
        return task.reward().score


def line_of(row: Row) -> str:
    if not row.plain:
        return f"| {row.task} | – | – | – | – | {row.note} |"
    cells = (row.plain["oracle"], row.ours["oracle"], row.plain["nop"], row.ours["nop"])
    return f"| {row.task} | {' | '.join(cells)} | {'' if row.alike else 'differs'} |"


if __name__ == "__main__":
    assert variable("DOCKER_HOST"), "set DOCKER_HOST"
    os.environ.update(dict.fromkeys(KEYS, ""))
    sys.exit(main())
