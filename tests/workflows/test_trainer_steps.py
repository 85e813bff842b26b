"""The trainer's step reaches the turns of a run whose model server has no weight versions."""

from clotho.branches import read_branches
from clotho.entries import Rendering
from clotho.inference.base import Inference
from clotho.runs import read_served
from clotho.testing.cluster import Cluster
from clotho.testing.scripted_model import serving
from clotho.trainer_steps import note_step
from tests.support import start
from tests.token_servers import SequenceSampler


async def test_turns_name_the_step_that_was_noted(cluster: Cluster) -> None:
    journal, name = cluster.open_journal(), "stepped"
    await note_step(journal, name, 12)
    async with serving(SequenceSampler()) as url:
        rendering = Rendering(tool_call_parser="hermes")
        options = {"inference": Inference.TOKENS, "rendering": rendering, "model": "clotho-tiny"}
        await (await start(cluster, name, url, max_tokens=200, **options)).result()
    (branch,) = await read_branches(journal, f"{name}/g000000/r0", 1)
    assert {span.version for span in branch.versions} == {"step:12"}
    assert sum(span.end - span.start for span in branch.versions) == sum(branch.mask) > 0
    served = await read_served(journal, name)
    assert served is not None and served.weight_version is None
