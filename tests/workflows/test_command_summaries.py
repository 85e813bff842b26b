"""Commands in the Temporal UI: redacted there as they are in results, and left out where workers show none."""

import pytest

from clotho.run_settings import RunSettings
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import start
from tests.workflows.scripts import run, say

TURNS = (run("echo hidden-value-1 \x1b[2J | tee /dev/null"), say("Done."))


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.slow
async def test_a_command_is_shown_redacted_or_not_at_all(private_cluster: Cluster, shown: bool) -> None:
    cluster = private_cluster
    await cluster.start_worker(TOOL_KEY="hidden-value-1", CLOTHO_WORKER__SHOW_COMMANDS=str(shown).lower())
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(TURNS,)),)))) as url:
        settings = RunSettings(redact=("TOOL_KEY",))
        await (await start(cluster, "commands", url, settings=settings)).result()
    history = await cluster.client.get_workflow_handle("commands/g000000/r0").fetch_history()
    summaries = [event.user_metadata.summary.data.decode() for event in history.events]
    command = " `echo [REDACTED] �[2J | tee /dev/null`" if shown else ""
    assert f'"0.0 `terminal`{command}"' in summaries
    assert not any(b"hidden-value-1" in event.SerializeToString() for event in history.events)
