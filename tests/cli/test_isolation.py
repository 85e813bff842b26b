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
    own = folder / str(request.node.name)
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
