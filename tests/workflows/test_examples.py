"""The example environments, rolled out for real."""

import asyncio
import statistics

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.identifiers.keys import reward_key
from clotho.rollouts.verification import RewardEntry
from clotho.runs.groups import scored_groups
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.workflows.scripts import run, say

MEDIAN = """\
def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
"""


async def test_file_tasks_give_groups_of_mixed_rewards(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    """Real sampled turns at temperature 1, real commands, and verification in the real files."""
    handle = await cluster.start(
        "file-tasks",
        f"{embedded_model.url}/v1",
        environment="file_tasks",
        model=embedded_model.model,
        groups=8,
        group_size=4,
    )
    progress = await handle.result()
    assert progress.rollouts == 32
    groups = [entry.siblings for _, entry in await scored_groups(cluster.open_journal(), "file-tasks")]
    scores = [[sibling.score for sibling in siblings] for siblings in groups]
    assert sum(statistics.pvariance(group) > 0 for group in scores) >= 2, scores
    assert any(sibling.tool_calls > 1 for siblings in groups for sibling in siblings)


@pytest.mark.slow
async def test_a_run_is_what_its_name_and_seed_make_it(
    cluster: Cluster, private_cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    """The same in another store; another one by another name, and by another seed."""
    await private_cluster.start_worker()

    async def rolled_out(where: Cluster, name: str, seed: int) -> list[tuple[float, int, int]]:
        url, model = f"{embedded_model.url}/v1", embedded_model.model
        handle = await where.start(
            name, url, environment="file_tasks", model=model, seed=seed, groups=2, group_size=2
        )
        await handle.result()
        groups = await scored_groups(where.open_journal(), name)
        return [(one.score, one.turns, one.sampled_tokens) for _, entry in groups for one in entry.siblings]

    first, again, other_name, other_seed = await asyncio.gather(
        rolled_out(cluster, "seeded-a", 5),
        rolled_out(private_cluster, "seeded-a", 5),
        rolled_out(private_cluster, "seeded-b", 5),
        rolled_out(cluster, "seeded-b", 6),
    )
    assert again == first
    assert other_name != first
    assert other_seed not in (first, other_name)


async def test_terminal_tasks_give_partial_credit(cluster: Cluster) -> None:
    """Sibling 0 solves each task, sibling 1 does half of it, sibling 2 nothing."""

    def task(match: str, whole: tuple[ScriptedTurn, ...], half: tuple[ScriptedTurn, ...]) -> Conversation:
        return Conversation(
            match=match, variants=((*whole, say("Done.")), (*half, say("Done.")), (say("No."),))
        )

    write = ScriptedTurn(
        calls=(ScriptedCall(name="write_file", arguments={"path": "stats.py", "content": MEDIAN}),)
    )
    patch = ScriptedTurn(
        calls=(
            ScriptedCall(
                name="patch",
                arguments={
                    "mode": "replace",
                    "path": "/work/stats.py",
                    "old_string": "    values.sort()",
                    "new_string": "    values = sorted(values)",
                },
            ),
        )
    )
    summary = run('echo \'{"requests": 5, "errors": 2, "bytes": 238}\' > summary.json')
    paths = run("cut -d' ' -f2 access.log | sort -u > paths.txt")
    rename = run('find tree -name "*.txt" -exec sh -c \'mv "$1" "${1%.txt}.md"\' _ {} \\;')
    script = Script(
        conversations=(
            task("median", (write,), (patch,)),
            task("access.log", (summary, paths), (summary,)),
            task("tree/", (rename,), (run("mv tree/a.txt tree/a.md"),)),
        )
    )
    async with serving(ScriptedModel(script)) as url:
        handle = await cluster.start(
            "terminal-tasks", url, environment="terminal_tasks", model="scripted", groups=3, group_size=3
        )
        await handle.result()
    journal = cluster.open_journal()
    scores = [
        [s.score for s in entry.siblings] for _, entry in await scored_groups(journal, "terminal-tasks")
    ]
    assert [group[0] for group in scores] == [1.0, 1.0, 1.0]
    assert [round(group[1], 2) for group in scores] == [0.67, 0.75, 0.33]
    assert [round(group[2], 2) for group in scores] == [0.33, 0.0, 0.33]
    reward = await journal.read_required(reward_key("terminal-tasks/g000000/r1"), RewardEntry)
    assert reward.breakdown == {"odd": 1.0, "even": 0.0, "argument_unchanged": 1.0}


async def test_the_readme_environment(cluster: Cluster) -> None:
    turns = (run("wc -w < text.txt > count.txt"), say("Done."))
    script = Script(conversations=(Conversation(variants=(turns, (say("4"),))),))
    async with serving(ScriptedModel(script)) as url:
        handle = await cluster.start(
            "word-count", url, environment="word_count", model="scripted", groups=10, group_size=2
        )
        progress = await handle.result()
    assert progress.groups == 4, "the dataset has four items"
    groups = await scored_groups(cluster.open_journal(), "word-count")
    assert [[s.score for s in entry.siblings] for _, entry in groups] == [[1.0, 0.0]] * 4
    end = await read_end(cluster.open_journal(), "word-count/g000003/r0")
    assert end is not None and end.summary.tool_calls == 1
