"""What the tested program can do to its own grading: it runs as the tests' user, and the tests run it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clotho.errors import VerificationFailed
from clotho.plugins.task_folders import control
from clotho.testing import sandboxed_context
from clotho.testing.task import SandboxedTask
from environments.task_folders import TaskFolders, TaskFoldersConfig
from tests.machine_image import IMAGE
from tests.tasks.making import make_task

TEST = """\
#!/bin/sh
timeout 20 sh ./program
. /tests/lib/check.sh
"""
CHECK = """\
grep -q right answer && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
FORGE = "echo 1 > /logs/verifier/reward.txt"
READ = "while read -r line; do echo $line; done < /logs/verifier/reward.txt"
SLOW_CONTAINERS = pytest.mark.parametrize(
    "place", ["bubblewrap", pytest.param("container", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(autouse=True)
def fresh_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("environments.task_folders.CONTROLS", control.Controls())


@pytest.fixture(params=["bubblewrap", "container"])
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The configuration by which the tests run over the host's programs, or in a container of the task's image."""
    if request.param == "container":
        request.getfixturevalue("engine")
        return {}
    return {"host_programs": True}


def folder_with(tmp_path: Path, test: str = TEST, toml: str = "") -> Path:
    folder = make_task(tmp_path / "task", f'[environment]\ndocker_image = "{IMAGE}"\n{toml}')
    (folder / "tests" / "test.sh").write_text(test)
    (folder / "tests" / "lib").mkdir()
    (folder / "tests" / "lib" / "check.sh").write_text(CHECK)
    return folder


@contextmanager
def agent_with(folder: Path, program: str, **config: Any) -> Iterator[SandboxedTask]:
    """A task whose agent has written `program`, which the tests run."""
    with sandboxed_context(TaskFolders(TaskFoldersConfig(path=str(folder), **config))) as task:
        assert task.agent.terminal("mkdir -p bin")["exit_code"] == 0
        task.agent.write_bytes("program", program.encode())
        yield task


def control_of(task: SandboxedTask) -> control.Control:
    assert isinstance(task.environment, TaskFolders)
    return task.environment.control(task.item, task.verifier())


LEFT = "(trap '' HUP TERM; exec sleep 987) > /dev/null 2>&1 &"
LATE = f"""
setsid sh -c 'until [ -s /logs/verifier/reward.txt ]; do sleep 0.1; done; sleep 2; {FORGE}' > /dev/null 2>&1 &
"""
AS_ANOTHER = """python3 -c "
import os, time
if os.fork() == 0:
    os.setsid(); os.geteuid() == 0 and os.setuid(1000); os.execlp('sleep', 'sleep', '987')
" > /dev/null 2>&1"""


@pytest.mark.parametrize(
    "program", [LEFT, f"setsid sh -c '{LEFT.replace(chr(39), chr(34))}' &", LATE, AS_ANOTHER]
)
def test_what_the_tests_leave_running_ends_before_their_reward_is_read(
    tmp_path: Path, place: dict[str, Any], program: str
) -> None:
    with agent_with(folder_with(tmp_path), program, **place) as task:
        ctx = task.verifier()
        assert task.environment.compute_reward(task.item, task.result, ctx).score == 0.0
        assert ctx.terminal("pgrep -x sleep; cat /logs/verifier/reward.txt")["output"] == "0\n"


@pytest.mark.parametrize(
    "program",
    [
        f"echo '{FORGE}' >> /tests/test.sh",
        f"rm -f /tests/test.sh; mv /tests/test.sh /tests/old; echo '{FORGE}' > /tests/test.sh",
        f"echo '{FORGE}' > /tests/lib/check.sh",
        f"mv /tests/lib /tests/old; mkdir /tests/lib; echo '{FORGE}' > /tests/lib/check.sh",
        f"for fd in /proc/$PPID/fd/* /proc/[0-9]*/fd/*; do echo '{FORGE}' >> $fd; done 2>/dev/null; true",
        "mount --bind . /tests; umount /tests/test.sh; true",
    ],
)
def test_no_program_earns_a_reward_for_nothing(tmp_path: Path, place: dict[str, Any], program: str) -> None:
    with agent_with(folder_with(tmp_path), program, **place) as task:
        reward = task.reward()
        assert (reward.score, reward.breakdown) == (0.0, {"reward": 0.0})


def test_beside_the_tests_files_can_be_written(tmp_path: Path, place: dict[str, Any]) -> None:
    """Such as caches and virtual environments."""
    with agent_with(
        folder_with(tmp_path), "echo right > answer; touch /tests/a /tests/lib/b; mkdir /tests/c", **place
    ) as task:
        assert task.reward().score == 1.0


def test_a_root_agent_replaces_no_program_that_the_tests_call(tmp_path: Path, engine: str) -> None:
    """Neither those of test.sh nor those by which Clotho reads the reward."""
    test = f"{TEST}grep -q right answer && cat answer\npython3 -c 'print(0)' > /logs/verifier/reward.txt\n"
    with agent_with(folder_with(tmp_path, test), "true") as task:
        forged = f"printf '#!/bin/sh\\n{FORGE}\\n' > /tmp/forged; chmod +x /tmp/forged"
        programs = "cat grep tail timeout wc python3"
        replaced = (
            f"{forged}; for each in {programs}; do cp --remove-destination /tmp/forged /usr/bin/$each; done"
        )
        assert task.agent.terminal(replaced)["exit_code"] == 0
        assert task.agent.terminal(f"cat; {READ}")["output"] == "1\n", "they are replaced for the agent"
        assert task.reward().score == 0.0


def test_tests_may_be_run_over_the_system_as_the_agent_left_it(tmp_path: Path, engine: str) -> None:
    test = "#!/bin/sh\ncat /etc/installed > /logs/verifier/reward.txt\n"
    with agent_with(folder_with(tmp_path, test), "true", verify_in="container") as task:
        assert task.agent.terminal("echo 1 > /etc/installed")["exit_code"] == 0
        assert task.reward().score == 1.0


VOIDED = [
    ("sleep 600", "didn't end within 5 s, or were killed"),
    ("kill -9 $PPID; kill -9 -1", "neither reward.json nor reward.txt|or were killed"),
    ("kill -9 $(ps -o ppid= -p $PPID)", "neither reward.json nor reward.txt"),
    ("echo '[' > /logs/verifier/reward.json", "isn't JSON"),
    ("echo '{\"reward\": NaN}' > /logs/verifier/reward.json", "isn't finite"),
    ("rm -r /logs/verifier", "neither reward.json nor reward.txt"),
    ("mkfifo /logs/verifier/reward.json", "no regular file"),
    ("ln -s /etc/passwd /logs/verifier/reward.json", "no regular file"),
    ("head -c 2000000 /dev/zero > /logs/verifier/reward.json", "no regular file of at most 1 MiB"),
    ("""echo '{"reward": 7}' > /logs/verifier/reward.json""", r"the reward is 7, outside of \[0, 1\]"),
    ("""echo '{"reward": 1e999}' > /logs/verifier/reward.json""", "isn't finite"),
]


@SLOW_CONTAINERS
@pytest.mark.parametrize(("program", "said"), VOIDED)
def test_a_program_that_makes_its_tests_fail_is_found_out_by_a_control(
    tmp_path: Path, place: dict[str, Any], program: str, said: str
) -> None:
    """The same tests end with a valid reward where no agent has been."""
    folder = folder_with(tmp_path, toml="[verifier]\ntimeout_sec = 5\n")
    with agent_with(folder, program, **place) as task:
        with pytest.raises(VerificationFailed, match=said):
            task.reward()
        found = control_of(task)
    assert found.blames_agent


@SLOW_CONTAINERS
@pytest.mark.parametrize(
    "test", ["#!/bin/sh\necho '[' > /logs/verifier/reward.json\n", "#!/bin/sh\nsleep 600\n"]
)
def test_tests_that_fail_by_themselves_are_no_agents_doing(
    tmp_path: Path, place: dict[str, Any], test: str
) -> None:
    folder = folder_with(tmp_path, test, toml="[verifier]\ntimeout_sec = 1\n")
    with agent_with(folder, "true", **place) as task:
        with pytest.raises(VerificationFailed):
            task.reward()
        found = control_of(task)
    assert not found.blames_agent and found.failure


def test_a_control_is_known_for_an_hour() -> None:
    now = [0.0]
    runs: list[float] = []
    controls = control.Controls(clock=lambda: now[0])
    for moment in (0.0, 3_599.0, 3_600.0):
        now[0] = moment
        assert controls.of("task", lambda: runs.append(now[0])).blames_agent
    assert runs == [0.0, 3_600.0]


def test_a_task_may_have_rewards_beyond_one(tmp_path: Path) -> None:
    test = "#!/bin/sh\necho 7 > /logs/verifier/reward.txt\n"
    folder = folder_with(tmp_path, test, "[metadata.clotho]\nreward_range = [0, 10]\n")
    with agent_with(folder, "true", host_programs=True) as task:
        assert task.reward().score == 7.0
