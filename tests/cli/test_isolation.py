"""Hosts whose bubblewrap doesn't isolate: said at the start, and before a model is paid for a turn."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho
from tests.cli.services import Dev
from tests.sandbox.pretender import make_pretender
from tests.support import ONE_FILE

RIDDLE = "tests.environments.riddle:Riddle"
UNPROVED = "it can't be proved that a sandbox here "
REMEDY = "allow bubblewrap to make namespaces here, or run tool workers on another machine"


def writing() -> ScriptedModel:
    call = ScriptedCall(name="terminal", arguments={"command": "echo -n 1.0 > score"})
    turns = (ScriptedTurn(calls=(call,)), ScriptedTurn(content="A piano."))
    return ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))


def answering() -> ScriptedModel:
    turns = (ScriptedTurn(content="A piano."),)
    return ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))


@pytest.fixture
def author(folder: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of programs in which bubblewrap runs commands as they are."""
    own = folder / str(request.node.name).replace("/", "-")
    own.mkdir(mode=0o711)
    (own / "programs").mkdir()
    make_pretender(own / "programs", "bwrap")
    return own


@pytest.fixture
def variables(author: Path) -> dict[str, str]:
    return {
        "PATH": f"{author / 'programs'}:{os.environ['PATH']}",
        "CLOTHO_SANDBOX__ROOT": str(author / "sandboxes"),
        "TMPDIR": str(author),
    }


@pytest.fixture
async def dev(author: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Dev]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    started = Dev(author)
    yield started
    started.terminal.close()


@pytest.mark.slow
async def test_a_try_is_refused_before_its_first_turn(author: Path, variables: dict[str, str]) -> None:
    model = writing()
    async with serving(model) as url:
        refused = await clotho("try", ONE_FILE, "--model", url, folder=author, environment=variables)
    assert refused.status == 2
    assert f"clotho: {UNPROVED}" in refused.error
    assert "has no network" in refused.error
    assert REMEDY in refused.error
    assert not model.calls.requests


@pytest.mark.slow
async def test_a_try_without_a_sandbox_goes_on(author: Path, variables: dict[str, str]) -> None:
    async with serving(answering()) as url:
        done = await clotho("try", RIDDLE, "--model", url, folder=author, environment=variables)
    assert (done.status, done.error) == (0, "")
    assert "── reward 1 " in done.output


@pytest.mark.slow
async def test_dev_tells_it_and_runs_are_refused_before_their_first_turn(dev: Dev, author: Path) -> None:
    await dev.ready()
    assert UNPROVED.replace("a sandbox", "one") in dev.terminal.shown
    assert "has no network" in dev.terminal.shown
    model, quick = writing(), answering()
    async with serving(model) as url, serving(quick) as other:
        place = ("--store", dev.store, "--group-size", "2")
        refused = await clotho("run", ONE_FILE, "--run", "refused", "--groups", "12", "--model", url, *place)
        asked = model.calls.requests.total()
        unsafe = await clotho(
            "run", ONE_FILE, "--run", "unsafe", "--groups", "1", "--model", url, "--unsafe-local", *place
        )
        done = await clotho("run", RIDDLE, "--run", "riddles", "--groups", "1", "--model", other, *place)
    assert refused.status == 2
    assert f"clotho: {UNPROVED}" in refused.error
    assert REMEDY in refused.error
    assert asked == 0
    assert unsafe.status == 0, unsafe.error
    assert done.status == 0, done.error


VERIFYING = """
from clotho.environment import Environment, EnvironmentConfig, Reward, Solution


class AnswerConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class Answer(Environment):
    config_class = AnswerConfig
    command = "cat answer"
    hidden = {}

    async def setup(self):
        self.items = iter([{}])

    async def get_next_item(self):
        return next(self.items, None)

    def format_prompt(self, item):
        return "Write the answer."

    def solution(self, item):
        return Solution(command="echo -n right > /work/answer")

    def hidden_files(self, item):
        return self.hidden

    def compute_reward(self, item, result, ctx):
        found = ctx.terminal(self.command)["output"]
        return Reward(score=float(found == "right"))


class Absolute(Answer):
    command = "cat '/work/answer'"


class Hidden(Answer):
    command = "bash $CLOTHO_HIDDEN_FILES/test.sh"
    hidden = {"test.sh": b"cat /work/answer"}
"""
RELATIVE = ("echo -n right > /work/answer", "echo -n right > answer")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verifier", "named"),
    [
        ("Answer", None),
        ("Absolute", "the command names /work/answer"),
        ("Hidden", "hidden file test.sh names"),
    ],
)
async def test_without_isolation_a_verifier_that_names_work_is_refused(
    author: Path, variables: dict[str, str], verifier: str, named: str | None
) -> None:
    """The model is told in a result where the folder is."""
    (author / "answers.py").write_text(VERIFYING)
    calls = [
        ScriptedTurn(calls=(ScriptedCall(name="terminal", arguments={"command": each}),)) for each in RELATIVE
    ]
    script = Script(conversations=(Conversation(variants=((*calls, ScriptedTurn(content="Done.")),)),))
    async with serving(ScriptedModel(script)) as url:
        order = ("try", f"answers:{verifier}", "--unsafe-local", "--model", url)
        done = await clotho(*order, folder=author, environment=variables)
    assert "the command names /work/answer, and without isolation there is no /work: its files are in " in (
        done.output
    )
    if named is None:
        assert (done.status, done.error) == (0, "")
        assert "── reward 1 " in done.output
    else:
        assert done.status == 2
        assert f"clotho: {named}" in done.error
        assert "── reward" not in done.output


@pytest.mark.slow
async def test_without_isolation_a_solution_that_names_work_earns_no_reward(
    author: Path, variables: dict[str, str]
) -> None:
    (author / "answers.py").write_text(VERIFYING)
    order = ("try", "answers:Answer", "--unsafe-local", "--agent", "oracle")
    done = await clotho(*order, folder=author, environment=variables)
    assert done.status == 2
    assert "clotho: the command names /work/answer" in done.error
    assert "── reward" not in done.output
