"""`clotho try`, as an author uses it in a folder of their own."""

from pathlib import Path

import pytest

from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import CLOTHO, Finished, Terminal, clotho, descendants, gone

ENVIRONMENT = """
from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


class NumbersConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class Numbers(Environment):
    config_class = NumbersConfig

    async def setup(self) -> None:
        self.items = iter(range(3))

    async def get_next_item(self) -> Item | None:
        number = next(self.items, None)
        return None if number is None else {"number": number}

    def format_prompt(self, item: Item) -> str:
        return f"Write {item['number']} into ~/number."

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        found = ctx.read_bytes("~/number")
        assert found is not None, "nothing was written"
        return Reward(score=float(int(found) == item["number"]), breakdown={"written": 1.0}, log=f"found {found!r}")
"""


def policy(command: str) -> Script:
    call = ScriptedCall(name="terminal", arguments={"command": command})
    turns = (ScriptedTurn(calls=(call,)), ScriptedTurn(content="Done."))
    return Script(conversations=(Conversation(variants=(turns,)),))


@pytest.fixture
def author(folder: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with an environment, and the sandboxes of what is tried there."""
    own = folder / str(request.node.name)
    own.mkdir(mode=0o711)
    (own / "numbers_task.py").write_text(ENVIRONMENT)
    # A deployment's version, which is current on no server of a try's own.
    (own / "clotho.yaml").write_text("worker: {build_id: deployed}\n")
    return own


async def tried(author: Path, command: str, *options: str) -> Finished:
    async with serving(ScriptedModel(policy(command))) as url:
        variables = {"CLOTHO_SANDBOX__ROOT": str(author / "sandboxes"), "TMPDIR": str(author)}
        order = ("try", "numbers_task:Numbers", "--model", url, *options)
        return await clotho(*order, folder=author, environment=variables)


def left(author: Path) -> list[str]:
    """Files that a try leaves beside the author's."""
    own = {"numbers_task.py", "clotho.yaml", "__pycache__"}
    beside = [path.name for path in author.iterdir() if path.name not in {*own, "sandboxes"}]
    return beside + [path.name for path in (author / "sandboxes").glob("*")]


@pytest.mark.slow
async def test_a_rollout_is_printed_with_its_reward_and_nothing_is_kept(author: Path) -> None:
    done = await tried(author, "echo 2 | tee ~/number", "--item", "2")
    assert (done.status, done.error) == (0, "")
    said = [done.output.find(text) for text in (
        '"number": 2', "Write 2 into ~/number.", "terminal(", '\n2\nexit_code 0\n', "Done.", "── reward 1 ",
        "written 1", "found b'2\\n'", "completed: 2 turns, 1 tool call",
    )]  # fmt: skip
    assert -1 not in said, done.output
    assert said == sorted(said), done.output
    assert left(author) == []


@pytest.mark.slow
async def test_a_verifier_that_raises_shows_its_traceback(author: Path) -> None:
    done = await tried(author, "true")
    assert done.status == 1
    line = ENVIRONMENT.splitlines().index('        assert found is not None, "nothing was written"') + 1
    assert f'numbers_task.py", line {line}, in compute_reward' in done.output
    assert "AssertionError: nothing was written" in done.output
    assert done.error == "clotho: the environment raised what is shown above\n"
    assert left(author) == []


@pytest.mark.slow
async def test_what_can_not_be_tried_is_refused(author: Path) -> None:
    beyond = await tried(author, "true", "--item", "3")
    assert (beyond.status, beyond.complaint) == (1, "clotho: --item 3: there are 3 items, counted from 0")
    source = author / "numbers_task.py"
    source.write_text(ENVIRONMENT.replace("iter(range(3))", "iter(1)"))
    broken = await tried(author, "true")
    assert broken.status == 1
    assert "in setup" in broken.output
    assert "TypeError: 'int' object is not iterable" in broken.output
    source.write_text(ENVIRONMENT.replace("Write {item['number']}", "Write {item['digit']}"))
    unasked = await tried(author, "true")
    assert unasked.status == 1
    assert "KeyError: 'digit'" in unasked.output


@pytest.mark.slow
async def test_ctrl_c_ends_everything_that_was_started(author: Path) -> None:
    variables = [f"CLOTHO_SANDBOX__ROOT={author / 'sandboxes'}", f"TMPDIR={author}"]
    async with serving(ScriptedModel(policy("sleep 600"))) as url:
        order = ["env", "-C", str(author), *variables, CLOTHO, "try", "numbers_task:Numbers", "--model", url]
        terminal = Terminal("/usr/bin/env", *order[1:])
        try:
            await terminal.until("terminal(")
            started = descendants(terminal.pid)
            terminal.interrupt()
            assert await terminal.ended() == 130
        finally:
            terminal.close()
    await gone(started)
    assert left(author) == []


@pytest.mark.slow
async def test_a_breakpoint_of_a_verifier_stops_on_the_terminal(author: Path) -> None:
    source = ENVIRONMENT.replace("        assert found", "        breakpoint()\n        assert found")
    (author / "numbers_task.py").write_text(source)
    variables = [f"CLOTHO_SANDBOX__ROOT={author / 'sandboxes'}", f"TMPDIR={author}", "NO_COLOR=1"]
    async with serving(ScriptedModel(policy("echo 0 > ~/number"))) as url:
        order = ["env", "-C", str(author), *variables, CLOTHO, "try", "numbers_task:Numbers", "--model", url]
        terminal = Terminal("/usr/bin/env", *order[1:], "--debug")
        try:
            await terminal.until("(Pdb)")
            terminal.type("found * 3")
            await terminal.until(r"b'0\n0\n0\n'")
            terminal.type("continue")
            await terminal.until("reward 1")
            assert await terminal.ended() == 0
        finally:
            terminal.close()
    assert left(author) == []
