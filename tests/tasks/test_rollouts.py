"""Task folders in real sandboxes, graded by their own tests."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from clotho.config import variable
from clotho.dataset_config import DatasetConfig
from clotho.environment import Item
from clotho.errors import EnvironmentFailed, InvalidInput, SandboxUnhealthy, VerificationFailed
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.task_folders import artifacts
from clotho.plugins.task_folders.collection import read_tasks
from clotho.plugins.task_folders.sandboxes import container_sandbox, grading_sandbox
from clotho.rollouts.rollout import as_bytes
from clotho.testing import sandboxed_context
from environments.task_folders import TaskFolders, TaskFoldersConfig
from tests.cli.command import clotho
from tests.machine_image import IMAGE
from tests.tasks.making import make_task

FOLDERS = Path(__file__).parent / "folders"
RIGHT = (
    *(
        "becomes-ready",
        "env-chain",
        "fresh-copy",
        "given-files",
        "hello-file",
        "helpers",
        "kept-files",
        "late-work",
        "one-service",
        "partial",
        "planted",
    ),
    *("sealed-box", "served", "unseen"),
)
OF_CONTAINERS = ("as-user", "built", "sealed-grader")
WRONG = (
    "endless",
    "lenient",
    "nan",
    "never-ready",
    "slow-solution",
    "unreached",
    "unserved",
    "unsolved",
    "unwritten",
    "wrong-solution",
)


def one(name: str, **config: Any) -> TaskFolders:
    return TaskFolders(TaskFoldersConfig(path=str(FOLDERS / name), host_programs=True, **config))


def keyed(folder: Path) -> TaskFoldersConfig:
    return TaskFoldersConfig(path=str(folder), host_programs=True, variables=("GRADER_KEY",))


def test_no_task_reads_a_variable_that_the_run_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKERS_SECRET", "s3cret")
    folder = shutil.copytree(FOLDERS / "hello-file", tmp_path / "task")
    file = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(file + '\nenv = {A = "${WORKERS_SECRET}"}\n')
    refused = TaskFolders(TaskFoldersConfig(path=str(folder), host_programs=True))
    said = r"environment\.env\.A: environment variable WORKERS_SECRET is not among the `variables`"
    with pytest.raises(InvalidInput, match=said), sandboxed_context(refused):
        pass
    (folder / "task.toml").write_text(file + '\nenv = {A = "${WORKERS_SECRET:-none}"}\n')
    with sandboxed_context(TaskFolders(TaskFoldersConfig(path=str(folder), host_programs=True))) as task:
        assert task.agent.terminal("echo $A")["output"] == "none\n"
    allowed = TaskFoldersConfig(path=str(folder), host_programs=True, variables=("WORKERS_SECRET",))
    with sandboxed_context(TaskFolders(allowed)) as task:
        assert task.agent.terminal("echo $A")["output"] == "s3cret\n"


def test_a_task_asks_for_a_container_of_its_image() -> None:
    tasks = {task.path.name: task for task in read_tasks(str(FOLDERS), variable).tasks}
    asked = {name: container_sandbox(task) for name, task in tasks.items()}
    as_user, built = asked["as-user"].backend, asked["built"].backend
    assert isinstance(as_user, DockerConfig)
    assert (as_user.image, as_user.user, as_user.workdir) == (IMAGE, "1000", "/srv/work")
    assert (as_user.cpus, as_user.network, asked["as-user"].memory_mb) == (0.5, "none", 128)
    assert isinstance(built, DockerConfig)
    assert built.dockerfile == str(FOLDERS / "built" / "environment" / "Dockerfile")


def test_a_task_may_work_in_the_folder_of_its_solution(tmp_path: Path, engine: str) -> None:
    """The folder begins as the image has it, and the oracle's files are put over that."""
    folder = make_task(tmp_path / "task", "")
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").write_text(
        f"FROM {IMAGE}\nRUN mkdir /solution && echo given > /solution/given\nWORKDIR /solution\n"
    )
    (folder / "solution" / "solve.sh").write_text("#!/bin/sh\ncat given > answer\n")
    (folder / "tests" / "test.sh").write_text(
        "#!/bin/sh\ncmp given answer && echo 1 > /logs/verifier/reward.txt\n"
    )
    environment = TaskFolders(TaskFoldersConfig(path=str(folder)))
    with sandboxed_context(environment) as task:
        assert task.agent.terminal("pwd; ls")["output"] == "/solution\ngiven\n"
        solution = environment.solution(task.item)
        for path, content in solution.files.items():
            task.agent.write_bytes(path, as_bytes({path: content})[path])
        task.agent.terminal(solution.command)
        assert task.agent.terminal("ls")["output"] == "answer\ngiven\nsolve.sh\n"
        assert task.reward().score == 1.0


def test_named_rewards_are_kept_and_json_beats_text() -> None:
    with sandboxed_context(one("partial")) as task:
        assert task.agent.terminal("printf 5 > sum.txt; cat /tests/* /solution/*")["exit_code"] == 1
        reward = task.reward()
    assert (reward.score, reward.breakdown) == (0.5, {"accuracy": 1.0, "format": 0.0})


def test_what_the_agent_planted_for_the_tests_is_gone() -> None:
    with sandboxed_context(one("planted")) as task:
        planted = (
            """touch /tests/planted /logs/verifier/planted; echo '{"a": 7}' > /logs/verifier/reward.json"""
        )
        assert task.agent.terminal(planted)["exit_code"] == 0
        assert task.reward().breakdown == {"reward": 0.0}


FORGED = """echo '{"reward": 1}' > /logs/verifier/reward.json"""
LONG_NAMES = """python3 -c "
for n in range(9_000): open(f'/tests/{n:0250}', 'w')
for n in range(9_000): open(f'/logs/verifier/.{n:0249}', 'w')
" """


@pytest.mark.parametrize(
    "planted",
    [
        f"{FORGED}; {LONG_NAMES}",
        f"{FORGED}; chmod 0444 /logs/verifier/reward.json; chmod 0555 /logs/verifier /logs; chmod 0 /tests",
        "mkdir -p /tests/test.sh/a/b; chmod 0 /tests/test.sh/a; chmod 0555 /tests/test.sh",
        "rm -r /logs/verifier; mkdir /logs/agent/v; ln -s /logs/agent/v /logs/verifier; touch /tests/planted; "
        + FORGED,
        "rm -r /logs/verifier; echo 1 > /logs/verifier; mkfifo /tests/test.sh",
        "cd /tests; mkdir 'the tests have ended' $'a\\nthe tests have ended'; chmod 0 *; " + FORGED,
    ],
)
def test_nothing_that_the_agent_plants_forges_or_prevents_its_reward(planted: str) -> None:
    with sandboxed_context(one("planted")) as task:
        assert task.agent.terminal(planted)["exit_code"] == 0
        assert task.reward().breakdown == {"reward": 0.0}


class WithoutTests(TaskFolders):
    def hidden_files(self, item: Item) -> dict[str, bytes]:
        return {}


def test_what_keeps_the_tests_from_their_place_is_the_agents_doing() -> None:
    config = TaskFoldersConfig(path=str(FOLDERS / "planted"), host_programs=True)
    with sandboxed_context(WithoutTests(config)) as task:
        assert task.agent.terminal(FORGED)["exit_code"] == 0
        reward = task.reward()
    assert (reward.score, reward.log) == (0.0, "/logs/verifier and /tests can't be made ready for the tests")


def test_a_log_of_any_size_is_shown_by_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_KEY", "s3cret" * 2_000)
    folder = shutil.copytree(FOLDERS / "hello-file", tmp_path / "task")
    with (folder / "task.toml").open("a") as file:
        file.write('[verifier]\nenv = {KEY = "${GRADER_KEY}"}\n')
    (folder / "tests" / "test.sh").write_text(
        "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\nhead -c 70000000 /dev/zero\necho $KEY; echo end $KEY\n"
    )
    with sandboxed_context(TaskFolders(keyed(folder))) as task:
        reward = task.reward()
    assert (reward.score, reward.log) == (1.0, "\nend ***\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unwritten", "neither reward.json nor reward.txt"),
        ("nan", "isn't a finite number"),
        ("endless", "didn't end within 1.5 s"),
    ],
)
def test_tests_without_a_reward_give_none(name: str, said: str) -> None:
    with sandboxed_context(one(name)) as task, pytest.raises(VerificationFailed, match=said):
        task.reward()


def test_no_log_shows_the_workers_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_KEY", "s3cret")
    folder = shutil.copytree(FOLDERS / "hello-file", tmp_path / "task")
    with (folder / "task.toml").open("a") as file:
        file.write('[verifier]\nenv = {KEY = "${GRADER_KEY}"}\n')
        file.write("[metadata.clotho]\nreward_range = [0, 10]\n")
    (folder / "tests" / "test.sh").write_text(
        '#!/bin/sh\necho "$KEY"\necho ${#KEY} > /logs/verifier/reward.txt\n'
    )
    with sandboxed_context(TaskFolders(keyed(folder))) as task:
        reward = task.reward()
    assert (reward.score, reward.log) == (6.0, "***\n")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"path": str(FOLDERS)}, "bare-number: environment.memory"),
        ({"path": str(FOLDERS), "skip_broken": True, "names": ("nothing",)}, "is called nothing"),
        ({"path": str(FOLDERS / "as-user")}, "without containers: environment.cpus, a user"),
        ({"path": str(FOLDERS / "sealed-grader")}, "without containers: an image with the tests"),
    ],
)
def test_what_cannot_be_rolled_out_is_refused(config: dict[str, Any], said: str) -> None:
    environment = TaskFolders(TaskFoldersConfig.model_validate({"host_programs": True, **config}))
    with pytest.raises(InvalidInput, match=said), sandboxed_context(environment):
        pass


def test_a_task_that_changed_since_the_run_began_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / "hello-file", tmp_path / "task")
    environment = TaskFolders(TaskFoldersConfig(path=str(folder), host_programs=True))
    with sandboxed_context(environment) as task:
        item = task.item
    with pytest.raises(InvalidInput, match="has changed since the run began"):
        environment.format_prompt({**item, "digest": "0"})


def test_a_healthcheck_is_awaited_before_the_agent_begins() -> None:
    with sandboxed_context(one("becomes-ready")) as task:
        assert task.agent.terminal("wc -l < tries; cp tries answer")["output"] == "4\n"
        assert task.reward().score == 1.0


def test_a_healthcheck_that_never_passes_is_named() -> None:
    said = r"healthcheck never passed: 'test -e /nowhere' failed 2 times, at last with exit code 1"
    with pytest.raises(SandboxUnhealthy, match=said), sandboxed_context(one("never-ready")):
        pass


def test_a_probe_that_hangs_counts_as_a_failure(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / "never-ready", tmp_path / "task")
    file = (folder / "task.toml").read_text().replace("test -e /nowhere", "sleep 600")
    (folder / "task.toml").write_text(file.replace("timeout_sec = 180", "timeout_sec = 0.2"))
    environment = TaskFolders(TaskFoldersConfig(path=str(folder), host_programs=True))
    with (
        pytest.raises(SandboxUnhealthy, match=r"'sleep 600' failed 2 times.*code 124"),
        sandboxed_context(environment),
    ):
        pass


def test_files_are_kept_as_the_task_asks() -> None:
    with sandboxed_context(one("kept-files")) as task:
        solution = (FOLDERS / "kept-files" / "solution" / "solve.sh").read_text()
        agents = "ln -s /etc/passwd out/link; printf x > /logs/artifacts/mine"
        assert task.agent.terminal(f"{solution}\n{agents}")["exit_code"] == 0
        reward = task.reward()
    assert reward.score == 1.0
    kept = {"logs/artifacts/lines": b"3\n", "logs/artifacts/mine": b"x"}
    assert reward.artifacts == {"report.txt": b"a\nb\nc\n", "results/run.sh": b"kept\n", **kept}
    assert reward.log.startswith("collect: 'exit 3' failed with exit code 3")


def test_artifacts_beyond_their_bound_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_KIB", 8)
    with sandboxed_context(one("kept-files")) as task:
        task.agent.terminal(
            "mkdir out; cd out; for n in 1 2 3; do head -c ${n}900 /dev/zero > $n; done; head -c 9000 /dev/zero > x"
        )
        reward = task.reward()
    assert sorted(reward.artifacts) == ["results/1", "results/2"]
    assert [line for line in reward.log.splitlines() if line.startswith("artifact")] == [
        "artifact ./out/3 was left out",
        "artifact ./out/x was left out",
    ]


def test_artifacts_deeper_than_their_bound_are_left_out_by_name() -> None:
    with sandboxed_context(one("kept-files")) as task:
        folders = "$(printf 'd/%.0s' $(seq {}))"
        kept, deep = folders.format(63), folders.format(800)
        made = task.agent.terminal(
            f"for folder in out/cache/{deep} /logs/artifacts/{kept} /logs/artifacts/e/{deep}; "
            "do mkdir -p $folder && touch ${folder}f; done"
        )
        assert made["exit_code"] == 0
        reward = task.reward()
    assert list(reward.artifacts) == [f"logs/artifacts/{'d/' * 63}f"]
    (left_out,) = [line for line in reward.log.splitlines() if line.startswith("artifact")]
    assert left_out.startswith("artifact /logs/artifacts/e/d/d/d/d/") and len(left_out) < 300


def test_artifacts_that_cannot_be_listed_are_no_missing_ones(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / "hello-file", tmp_path / "task")
    with (folder / "task.toml").open("a") as file:
        file.write('[environment.env]\nPATH = "/nowhere"\n')
    environment = TaskFolders(TaskFoldersConfig(path=str(folder), host_programs=True))
    with (
        sandboxed_context(environment) as task,
        pytest.raises(EnvironmentFailed, match="no usable find and mktemp"),
    ):
        task.reward()


def test_a_separate_verifier_has_nothing_of_the_agents_but_the_artifacts() -> None:
    with sandboxed_context(one("fresh-copy")) as task:
        solution = (FOLDERS / "fresh-copy" / "solution" / "solve.sh").read_text()
        assert task.agent.terminal(solution)["exit_code"] == 0
        assert task.reward().score == 1.0
    with sandboxed_context(one("fresh-copy")) as task:
        task.agent.terminal("echo 1 > /logs/verifier/reward.txt")
        assert task.reward().score == 0.0


@pytest.mark.parametrize("places", ['"/logs", "/tests"', '"/logs/./verifier", "/tests/."'])
def test_no_artifact_is_a_reward_or_among_the_tests_of_a_separate_verifier(
    places: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(FOLDERS / "fresh-copy", tmp_path / "task")
    file = (folder / "task.toml").read_text().replace('["answer"]', f'["answer", {places}]')
    (folder / "task.toml").write_text(file)
    with sandboxed_context(TaskFolders(TaskFoldersConfig(path=str(folder), host_programs=True))) as task:
        solution = (folder / "solution" / "solve.sh").read_text()
        assert (
            task.agent.terminal(f"{solution}\ntouch /tests/planted; {FORGED.replace('1', '7')}")["exit_code"]
            == 0
        )
        reward = task.reward()
    assert reward.breakdown == {"reward": 1.0}
    assert any(name.endswith("verifier/reward.json") for name in reward.artifacts)


def test_a_separate_verifier_gets_all_artifacts_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_KIB", 8)
    with sandboxed_context(one("fresh-copy")) as task:
        task.agent.terminal("head -c 9000 /dev/zero > answer")
        reward = task.reward()
    assert (reward.score, reward.log) == (0.0, "artifact ./answer was left out")


def test_a_verifier_asks_for_a_container_of_its_own_image() -> None:
    tasks = {task.path.name: task for task in read_tasks(str(FOLDERS), variable).tasks}
    sealed, fresh = (grading_sandbox(tasks[name]) for name in ("sealed-grader", "fresh-copy"))
    assert sealed is not None and isinstance(sealed.backend, DockerConfig)
    assert sealed.backend.dockerfile == str(FOLDERS / "sealed-grader" / "tests" / "Dockerfile")
    assert fresh is not None and isinstance(fresh.backend, DockerConfig) and fresh.backend.image == IMAGE
    assert grading_sandbox(tasks["hello-file"]) == container_sandbox(tasks["hello-file"]), "for controls"


async def test_a_task_mended_since_setup_is_read_again_for_later_runs(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / "hello-file", tmp_path / "task")
    config = TaskFoldersConfig(path=str(folder), host_programs=True)
    first, later = TaskFolders(config), TaskFolders(config)
    await first.setup()
    before = await first.get_next_item()
    assert before is not None
    with (folder / "tests" / "test.sh").open("a") as file:
        file.write("# mended\n")
    await later.setup()
    item = await later.get_next_item()
    assert item is not None
    with pytest.raises(InvalidInput, match="has changed since it was read"):
        first.hidden_files(before)
    assert first.hidden_files(item)["/tests/test.sh"].endswith(b"# mended\n")
    with pytest.raises(InvalidInput, match="has changed since the run began"):
        first.hidden_files(before)


async def test_the_rows_of_a_dataset_choose_tasks(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"task": "planted", "level": 1}\n{"task": "hello-file"}\n{"task": "nowhere"}\n')
    dataset = DatasetConfig(source=str(rows), id_field="task")
    config = TaskFoldersConfig(path=str(FOLDERS), skip_broken=True, dataset=dataset)
    environment = TaskFolders(config)
    await environment.setup()
    items = [await environment.next_item(), await environment.next_item()]
    assert [item and (item["id"], item.get("level")) for item in items] == [
        ("planted", 1),
        ("hello-file", None),
    ]
    assert items[1] is not None and environment.format_prompt(items[1]).startswith("Write the word hello")
    with pytest.raises(InvalidInput, match="is called 'nowhere', as a row's id"):
        await environment.next_item()


async def checked(folder: Path, *options: str) -> tuple[str, dict[str, str], str]:
    """What is said of folders that can't be read, of each wrong task, and the last line."""
    done = await clotho("tasks", "check", FOLDERS, "--logs", "logs", *options, folder=folder)
    assert done.status == 1, done.error
    assert "Traceback" not in done.error
    first, *table, last = done.output.splitlines()
    rows = {line.split()[0]: line for line in table if line.strip()}
    return (
        first,
        {
            name: " ".join(row.split())
            for name, row in rows.items()
            if name in (*RIGHT, *WRONG, *OF_CONTAINERS)
        },
        last,
    )


@pytest.mark.slow
async def test_every_task_is_checked_over_this_hosts_programs(tmp_path: Path) -> None:
    names = json.dumps([*RIGHT, *WRONG])
    broken, wrong, last = await checked(tmp_path, "--set", "host_programs=true", "--set", f"names={names}")
    assert broken.startswith("task bare-number: environment.memory")
    assert set(wrong) == set(WRONG)
    assert last.startswith(f"right: {len(RIGHT)} of {len(RIGHT) + len(WRONG) + 1} tasks")
    kept = "is 1 with --set keep_services=true, or keep_services = true in [metadata.clotho]"
    assert kept in wrong["unserved"], "its tests ask a server that the oracle leaves running"
    assert "should be 1: its tests couldn't reach a host" in wrong["unreached"]
    assert "sum.txt" in (tmp_path / "logs" / "partial" / "oracle.log").read_text()
    assert "results/run.sh  5 bytes" in (tmp_path / "logs" / "kept-files" / "oracle.log").read_text()


@pytest.mark.slow
async def test_every_task_is_checked_in_containers(engine: str, tmp_path: Path) -> None:
    _, wrong, last = await checked(tmp_path)
    assert set(wrong) == {*WRONG, "built"}, last
    both = 'is 1 with --set verify_in="container", or verify_in = "container" in [metadata.clotho]'
    assert both in wrong["built"], "its oracle changes a file of the image"
    assert "keep_services = true in" in wrong["unserved"]
    right = len(RIGHT) + len(OF_CONTAINERS) - 1
    assert last.startswith(f"right: {right} of {right + 1 + len(WRONG) + 1} tasks")
