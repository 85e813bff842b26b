"""The sandbox after a lost one holds whatever tools can repeat; what they can't is on record."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.ids import job_key
from clotho.identifiers.keys import call_key
from clotho.plugin import plugins
from clotho.rollouts.call import CallEntry
from clotho.rollouts.lease import Fidelity
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from clotho.tools.terminal import session_id
from tests.cluster import Cluster, cluster_in
from tests.support import start
from tests.tools import notes
from tests.workflows.losses import WAITS, lose_while_waiting, output
from tests.workflows.scripts import run, say


@pytest.fixture(scope="module")
async def noting(temporal: TemporalServer, folder: Path) -> AsyncIterator[Cluster]:
    """A worker that has the tools of another package; this process has them, too."""
    with pytest.MonkeyPatch.context() as patch:
        packages = notes.installed(folder / "packages")
        patch.syspath_prepend(packages)
        plugins.cache_clear()
        async with cluster_in(temporal, folder / "noting", "noting") as cluster:
            await cluster.start_worker(PYTHONPATH=f"{packages}:{Path.cwd()}")
            yield cluster
    plugins.cache_clear()


def calls(*asked: tuple[str, dict[str, Any]]) -> ScriptedTurn:
    return ScriptedTurn(calls=tuple(ScriptedCall(name=name, arguments=given) for name, given in asked))


def terminal(command: str, **given: Any) -> tuple[str, dict[str, Any]]:
    return "terminal", {"command": command, **given}


async def losses(cluster: Cluster, name: str, *turns: ScriptedTurn) -> tuple[Fidelity, ...]:
    """The fidelities of a rollout that takes these turns, and loses its sandbox at the command that waits."""
    rollout = f"{name}/g000000/r0"
    script = Script(conversations=(Conversation(variants=((*turns, say("Done.")),)),))
    async with serving(ScriptedModel(script)) as url:
        overrides = {"enabled_toolsets": ["terminal", "file", "notes"]}
        handle = await start(cluster, name, url, overrides=overrides)
        await lose_while_waiting(cluster, rollout)
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.score == 1.0
    return end.summary.losses


async def shown(cluster: Cluster, name: str, call: str) -> str:
    entry = await cluster.open_journal().read_required(call_key(f"{name}/g000000/r0", call), CallEntry)
    return entry.content


@pytest.mark.slow
async def test_what_a_tool_without_a_replay_wrote_is_gone_and_on_record(noting: Cluster) -> None:
    taken = ("take_note", {"note": "remember"})
    found = await losses(noting, "not-replayed", calls(taken, terminal(WAITS)), calls(("read_note", {})))
    assert found == (Fidelity.DIVERGED,)
    assert json.loads(await shown(noting, "not-replayed", "0001-00")) == {"note": ""}


async def test_a_tool_that_only_looks_is_not_replayed_and_costs_no_fidelity(noting: Cluster) -> None:
    looks: tuple[tuple[str, dict[str, Any]], ...] = (
        ("read_note", {}),
        ("search_files", {"pattern": "x"}),
        ("process", {"action": "list"}),
    )
    assert await losses(noting, "looks", calls(*looks, terminal(WAITS))) == (Fidelity.EXACT,)


async def test_a_call_that_was_refused_for_its_arguments_has_changed_nothing(noting: Cluster) -> None:
    refused = calls(("take_note", {}), terminal(WAITS))
    assert await losses(noting, "refused", refused) == (Fidelity.EXACT,)


async def test_a_line_given_to_a_process_is_not_said_to_be_replayed(noting: Cluster) -> None:
    name = "line"
    started = terminal("cat > /work/heard", background=True)
    given = ("process", {"action": "submit", "session_id": first_session(name), "data": "hello"})
    found = await losses(noting, name, calls(started), calls(given, terminal("true"), terminal(WAITS)))
    assert found == (Fidelity.DIVERGED,)


async def test_a_process_that_is_replayed_keeps_its_name(noting: Cluster) -> None:
    name = "background"
    session = {"session_id": first_session(name)}
    started = terminal("cat > /tmp/heard", background=True)
    given = ("process", {"action": "submit", "data": "hello", **session})
    heard = run("until grep hello /tmp/heard; do sleep 0.05; done")
    assert await losses(noting, name, calls(started, terminal(WAITS)), calls(given), heard) == (
        Fidelity.REPLAYED,
    )
    assert await output(noting, f"{name}/g000000/r0", "0002-00") == "hello"


async def test_a_long_result_is_again_where_the_model_was_told(noting: Cluster) -> None:
    """The result of a tool that only looks is, too: its file is part of the sandbox."""
    name = "long-result"
    wide = run("for n in $(seq 900); do printf '%0400d over\\n' $n; done > /work/wide")
    looked = ("search_files", {"pattern": "over", "limit": 900})
    again = run("ls /tmp/clotho-results/*")
    found = await losses(noting, name, wide, calls(looked, terminal(WAITS)), again)
    assert found == (Fidelity.REPLAYED,)
    told = (await shown(noting, name, "0001-00")).split("Full output saved to: ")[1].split("\n")[0]
    assert await output(noting, f"{name}/g000000/r0", "0002-00") == told


def first_session(name: str) -> str:
    """The process that the first call of the first turn starts."""
    return session_id(job_key(f"{name}/g000000/r0", "call", "0000-00", 0))
