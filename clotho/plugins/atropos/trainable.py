"""Checks, before a run is served, that its turns can be trained on."""

from functools import partial

from clotho.config import secret
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.errors import InvalidInput
from clotho.models.backend import Inference, ServerCapabilities
from clotho.models.endpoint import Endpoint
from clotho.models.sampling import Sampling
from clotho.models.write_ahead import FlushPolicy
from clotho.plugins.atropos.adapter_run import AdapterRun
from clotho.plugins.atropos.group_sender import retry_outages
from clotho.plugins.atropos.run_setup import Connections
from clotho.rollouts.run import RunManifest
from clotho.runs.manifest import note_capabilities


async def require_trainable(run: AdapterRun, *, accept_chat: bool) -> None:
    """Raise InvalidInput for runs without tokens, unless they are accepted, and for biased logprobs.

    The model servers are probed, through outages, only if the run's sampling makes the kind of logprobs matter.
    """
    manifest = run.manifest
    if run.endpoint.inference is Inference.CHAT:
        if not accept_chat:
            raise InvalidInput(
                "nothing can be trained on groups without tokens: give --env.inference tokens, "
                "or --env.accept_chat_data True to serve them all the same"
            )
    elif manifest.sampling.distribution_changes:
        for server in run.endpoint.servers:
            served = await retry_outages(
                partial(_found, run.connections, manifest, server),
                "find out what the model server's logprobs are of",
            )
            await note_capabilities(run.connections.journal, manifest.run, served)
            check_sampling(manifest.sampling, served)


def check_sampling(sampling: Sampling, served: ServerCapabilities) -> None:
    """Raise InvalidInput if logprobs aren't of the distribution sampled from: they would bias a trainer."""
    reshaping = ", ".join(sampling.distribution_changes)
    if reshaping and served.logprobs_mode != "processed":
        raise InvalidInput(
            f"sampling with {reshaping} needs logprobs of what is sampled from, and those of "
            f"{served.base_url} are {served.logprobs_mode}: start vLLM with --logprobs-mode processed_logprobs, "
            "or sample at temperature 1 without truncation"
        )


async def _found(
    connections: Connections, manifest: RunManifest, endpoint: Endpoint
) -> ServerCapabilities | None:
    # imported here: few runs need it, and every adapter would start later for it
    from clotho.models.backends import Backends

    timeout = connections.settings.worker.model_first_token_timeout_seconds
    backends = Backends(connections.journal, secret, timeout, {TINY: BUNDLED}, FlushPolicy())
    try:
        return await backends.at(endpoint, manifest.model, manifest.rendering).check(manifest.model)
    finally:
        await backends.aclose()
