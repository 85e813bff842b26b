"""The shipped environments against agents that go for the reward instead of the task."""

import asyncio

import pytest

from clotho.environment import AgentResult, Environment, Reward
from clotho.environment.tool_context import ToolContext
from clotho.sandbox.local.backend import LocalBackend
from environments.terminal_tasks import TASKS, TerminalTasks, TerminalTasksConfig
from environments.word_count import WordCount, WordCountConfig
from tests.sandbox.shell import Shell
from tests.sandbox.verifying import looking

RESULT = AgentResult(
    messages=[], turns_used=1, finished_naturally=True, reasoning_per_turn=[], tool_errors=[]
)


async def reward(local: LocalBackend, lease: str, environment: Environment, item: dict[str, str]) -> Reward:
    aio = looking(local, lease)
    context = ToolContext(aio, asyncio.get_running_loop())
    returned = await asyncio.to_thread(environment.compute_reward, dict(item), RESULT, context)
    return returned if isinstance(returned, Reward) else Reward(score=returned)


async def task_reward(local: LocalBackend, agent: Shell, lease: str, task: str, *commands: str) -> Reward:
    for path, content in TASKS[task].files.items():
        if not (await agent.sandbox.read_file(path, 100_000)).content:
            await agent.sandbox.write_file(path, content.encode())
    for command in commands:
        await agent.run(command)
    return await reward(local, lease, TerminalTasks(TerminalTasksConfig()), {"task": task})


LINES = "odd 1\\neven 1\\nargument_unchanged 1\\nall passed\\n"
FORGERIES = {
    "prints the checker's lines and exits": f"import os; os.write(1, b'{LINES}'); os._exit(0)",
    "prints what it is asked for": 'print("[[5, [5, 9, 4]], [7, [7]]]"); raise SystemExit(0)',
    "replaces the printer": "import json; json.dumps = lambda *_: '[true, true]'\ndef median(v): return 0",
    "answers with what equals anything": (
        "class Equal(float):\n    __eq__ = lambda *_: True\n    __hash__ = None\ndef median(v): return Equal(1)"
    ),
    "writes much": "import os\nwhile True: os.write(1, b'[5, [5, 9, 4]]\\n' * 1000)",
    "never ends": "import time\ndef median(v): time.sleep(3600)",
}
SLOW = ("writes much", "never ends")


async def forged(local: LocalBackend, agent: Shell, lease: str, forgery: str) -> Reward:
    await agent.sandbox.write_file("stats.py", FORGERIES[forgery].encode())
    return await task_reward(local, agent, lease, "fix_median")


@pytest.mark.attack("verification", "a module under test that forges the checker's verdict")
@pytest.mark.parametrize("forgery", [name for name in FORGERIES if name not in SLOW])
async def test_a_module_does_not_talk_its_way_to_a_reward(
    local: LocalBackend, isolated: Shell, lease: str, forgery: str
) -> None:
    found = await forged(local, isolated, lease, forgery)
    assert found.breakdown["odd"] == found.breakdown["even"] == 0.0


@pytest.mark.attack("verification", "a module under test that writes without end, or never ends")
@pytest.mark.slow
@pytest.mark.parametrize("forgery", SLOW)
async def test_a_module_does_not_hold_up_its_verifier(
    local: LocalBackend, isolated: Shell, lease: str, forgery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("environments.terminal_tasks.CALL_SECONDS", 5)
    found = await forged(local, isolated, lease, forgery)
    assert found.score == 0.0


JSON = """
print('requests 1\\nerrors 1\\nbytes 1\\npaths 1')
def load(*_): return {"requests": 5, "errors": 2, "bytes": 238}
loads = load
"""


@pytest.mark.attack("verification", "a module of the workspace in place of one of the standard library")
async def test_a_shadowed_json_earns_nothing(local: LocalBackend, isolated: Shell, lease: str) -> None:
    await isolated.sandbox.write_file("json.py", JSON.encode())
    found = await task_reward(local, isolated, lease, "log_summary", "echo '{}' > summary.json")
    assert found.score == 0.0


@pytest.mark.attack("verification", "a file that stands for the verifier's own input")
@pytest.mark.parametrize("link", ["/dev/stdin", "/proc/self/fd/0", "/proc/self/fd/3", "/verifier/expected"])
async def test_a_link_to_the_verifiers_input_earns_nothing(
    local: LocalBackend, isolated: Shell, lease: str, link: str
) -> None:
    commands = [f"ln -s {link} {name}" for name in ("paths.txt", "summary.json")]
    assert (await task_reward(local, isolated, lease, "log_summary", *commands)).score == 0.0


@pytest.mark.attack(
    "verification", "content that makes the verifier raise, so that the rollout isn't counted"
)
@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"requests": 1e999}', b"NaN", b"9" * 5000, b"[]", b"\xff\xfe", b""]
)
async def test_nothing_that_the_agent_writes_makes_it_raise(
    local: LocalBackend, isolated: Shell, lease: str, content: bytes
) -> None:
    await isolated.sandbox.write_file("summary.json", content)
    await isolated.sandbox.write_file("count.txt", content)
    assert (await task_reward(local, isolated, lease, "log_summary", "mkdir paths.txt")).score == 0.0
    words = WordCount(WordCountConfig())
    assert (await reward(local, lease, words, {"text": "a b"})).score == 0.0


@pytest.mark.attack("verification", "links in place of files that should be there")
async def test_a_tree_of_links_earns_what_is_there(local: LocalBackend, isolated: Shell, lease: str) -> None:
    trick = "rm -r tree; mkdir -p tree/deep/er; cd tree; for f in a.md deep/er/b.md; do ln -s /etc/passwd $f; done"
    found = await task_reward(local, isolated, lease, "rename_tree", trick)
    assert found.breakdown == {"renamed": 0.0, "none_left": 1.0, "others_kept": 0.0}


async def test_honest_work_is_rewarded(local: LocalBackend, isolated: Shell, lease: str) -> None:
    right = b"import statistics\ndef median(values): return statistics.median(values)\n"
    await isolated.sandbox.write_file("stats.py", right)
    assert (await task_reward(local, isolated, lease, "fix_median")).score == 1.0
