"""Disturbances of a rollout are told wherever its data are, so that it can be left out."""

import json
from collections.abc import AsyncIterator

import pytest

from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho_many
from tests.cluster import Cluster
from tests.support import start
from tests.workflows.losses import diverging, lose_while_waiting
from tests.workflows.scripts import say, scoring

RUN = "disturbed-cli"


@pytest.fixture(scope="module")
async def said(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Finished]]:
    """Commands on a group in which one rollout's second sandbox isn't what the lost one was."""
    variants = ((diverging(), say("Done.")), *scoring(0.5).variants)
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=variants),)))) as url:
        handle = await start(cluster, RUN, url, group_size=2)
        await lose_while_waiting(cluster, f"{RUN}/g000000/r0")
        await handle.result()
    place = ("--store", str(cluster.store))
    export = ("export", RUN, *place)
    yield await clotho_many(
        {
            "messages": export,
            "sharegpt": (*export, "--format", "sharegpt"),
            "groups": (*export, "--format", "groups"),
            "exact": (*export, "--exclude", "diverged", "--exclude", "replaced"),
            "exact-groups": (*export, "--format", "groups", "--exclude", "sandbox_lost"),
            "show": ("show", f"{RUN}/g000000/r0", *place),
            "show-group": ("show", f"{RUN}/g000000", *place),
            "show-undisturbed": ("show", f"{RUN}/g000000/r1", *place),
            "status": ("status", RUN, *place, "--temporal", cluster.address),
        },
        tmp_path_factory.mktemp("disturbed"),
    )


@pytest.mark.parametrize("form", ["messages", "sharegpt", "groups"])
def test_an_export_says_what_happened_to_each_rollout(said: dict[str, Finished], form: str) -> None:
    lines = [json.loads(line) for line in said[form].output.splitlines()]
    rollouts = lines[0]["rollouts"] if form == "groups" else lines
    assert [one["disturbances"] for one in rollouts] == [["sandbox_lost", "diverged"], []]
    assert [one["sandbox_losses"] for one in rollouts] == [["diverged"], []]
    assert [(one["repairs"], one["resumed_turns"], one["replacement_of"]) for one in rollouts] == [
        ([], 0, None)
    ] * 2


def test_inexact_rollouts_are_left_out_on_request(said: dict[str, Finished]) -> None:
    (line,) = map(json.loads, said["exact"].output.splitlines())
    assert (line["rollout"], line["reward"]) == (f"{RUN}/g000000/r1", 0.5)
    (group,) = map(json.loads, said["exact-groups"].output.splitlines())
    assert (group["scores"], len(group["rollouts"])) == ([0.5], 1)


def test_show_and_status_say_it_too(said: dict[str, Finished]) -> None:
    assert "lost sandboxes: 1, followed by: diverged" in said["show"].output
    assert "── the sandbox was lost; from here on another one, number 1, diverged" in said["show"].output
    assert "lost sandboxes" not in said["show-undisturbed"].output
    assert "1 diverged, 1 sandbox_lost" in " ".join(said["status"].output.replace("│", " ").split())


def test_a_group_is_shown_with_its_rollouts(said: dict[str, Finished]) -> None:
    rows = [" ".join(line.replace("│", " ").split()) for line in said["show-group"].output.splitlines()]
    (disturbed,) = [row for row in rows if row.startswith(("r0 0", "r0 1"))]
    assert disturbed.endswith("1 diverged, 1 sandbox_lost")
    assert "r1 0.5 2 1" in "\n".join(rows)
    assert 'item: {"number": 0}' in rows
    assert f"scored; a rollout: clotho show {RUN}/g000000/r0" in rows
