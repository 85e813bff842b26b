"""verifiers 0.4, and prime-rl over it: an `Env` whose episodes are Clotho's rollouts, token by token.

A package of environments exports `ClothoEnv` beside its taskset. An episode claims the next rollout of its task
under its policy. Claims count anew in each life of the environment server: one that is started again, with its
orchestrator, gets the rollouts of the life before, in the same order.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

import verifiers.v1 as vf
from clotho_client.client import AsyncRolloutClient
from clotho_client.errors import ClientError
from clotho_client.orders import ClaimOrder, GroupAnswer, Inference, OrderState, RunOrder
from clotho_client.rows import Outcome, TrainingRow
from pydantic import Field
from verifiers.v1.configs.agent import resolve_agent

from clotho.config import variable
from clotho.errors import ClothoError, InvalidInput
from clotho.identifiers.ids import job_key

GRACE_SECONDS = 1.0
"""Between a cancel and the end of its rollout: a server that shuts down cancels its runs too, and then stops."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (None, 1),
    "top_k": (None, -1, 0),
    "min_p": (None, 0),
    "repetition_penalty": (None, 1),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "reasoning_effort": (None,),
    "stop": (None,),
}
"""Sampling parameters that an order doesn't have, and the values that change nothing."""
STOPS = {
    Outcome.COMPLETED: "agent_completed",
    Outcome.CONTEXT_OVERFLOW: "max_total_tokens",
    Outcome.LIMIT_REACHED: "max_turns",
}


class ItemData(vf.TaskData):  # type: ignore[misc]
    """A task whose item is the Clotho environment's."""

    item: dict[str, Any]


class ItemTask(vf.Task[ItemData]):  # type: ignore[misc]
    """Rolled out, verified and scored by Clotho."""


class ClothoEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """Its model, client and sampling may be pinned. The harness and the runtime are Clotho's."""
    api: vf.BaseClientConfig = vf.BaseClientConfig(
        base_url="http://127.0.0.1:8010", api_key_var="ROLLOUT_TOKEN"
    )
    """The rollout API, and the environment variable of its token, or that of its file here."""
    run: str
    """Name of the run in Clotho; a part is added for the model and its sampling."""
    order: dict[str, Any]
    """Fields of the run's order: `environment`, `rendering`, `settings` and so on."""
    life: str = Field(default_factory=lambda: uuid.uuid4().hex)
    """What is given each rollout once. By default the environment server, its workers included."""


class ClothoEnv(vf.Env[ClothoEnvConfig]):  # type: ignore[misc]
    """One rollout an episode."""

    def __init__(self, config: ClothoEnvConfig) -> None:
        super().__init__(config)
        self._client: AsyncRolloutClient | None = None
        self._opened: dict[str, RunOrder] = {}
        self._opening = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold the connection to Clotho. No harness runs here: nothing is to be intercepted."""
        api = self.config.api
        # a variable that nobody named is verifiers' own, of another service's key
        named = "api_key_var" in api.model_fields_set
        self._client = AsyncRolloutClient(api.base_url, variable(api.api_key_var) if named else None)
        try:
            yield
        finally:
            for task in self._ending:
                task.cancel()
            client, self._client = self._client, None
            await client.close()

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        raise NotImplementedError("episodes are whole rollouts of Clotho: see run_episode")

    async def run_episode(
        self,
        task: vf.Task,
        ctx: vf.ModelContext,
        *,
        on_trace: Callable[[vf.Trace], None] | None = None,
        on_discard: Callable[[vf.Trace], None] | None = None,
    ) -> vf.Episode:
        """The next rollout of `task` in this life; with `ok` false, and the reason, if it has no reward."""
        stamp = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        episode = vf.Episode(env=vf.EnvInfo(id=self.config.env_id), task=stamp)
        agent = resolve_agent(
            self.config.agent,
            model=ctx.model,
            client=ctx.client,
            sampling=ctx.sampling,
            harness=self._default_harness,
        )
        try:
            async with asyncio.timeout(self.config.timeout.episode):
                answer = await self._rolled_out(task, agent)
        except (ClothoError, ClientError, TimeoutError) as error:
            episode.is_timeout = isinstance(error, TimeoutError)
            episode.errors.append(vf.Error(type=type(error).__name__, message=str(error)))
            return episode
        if answer.rows is None:
            episode.errors.append(vf.Error(type=answer.reason or "refused", message=answer.detail))
            return episode
        trace = vf.Trace(task=stamp, agent=vf.AgentInfo(config=agent))
        record(trace, answer.rows)
        if on_trace is not None:
            on_trace(trace)
        episode.traces.append(trace)
        episode.ok = True
        return episode

    async def _rolled_out(self, task: vf.Task, agent: vf.AgentConfig) -> GroupAnswer:
        client = self._client
        assert client is not None, "an episode runs inside serving()"
        sampling = agent.sampling.model_dump()
        # prime-rl puts the policy's version there
        version = str(sampling.get("cache_salt") or "")
        order = ClaimOrder(
            item=task.data.item,
            key=json.dumps([task.key, version]),
            life=self.config.life,
            step=int(version) if version.isdecimal() else None,
        )
        run, claim = await self._open(client, agent, sampling), uuid.uuid4().hex
        try:
            name = (await client.claim(run, claim, order)).name
            answer = await client.wait(run, name)
        except asyncio.CancelledError:
            # kept in a set: the loop alone holds tasks weakly, and this request ends now
            ending = asyncio.create_task(self._end(client, run, claim, order))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise
        if answer.state is OrderState.FINISHED:
            await client.acknowledge(run, name)
        return answer

    async def _open(self, client: AsyncRolloutClient, agent: vf.AgentConfig, sampling: dict[str, Any]) -> str:
        """The run for a model and its sampling. Raises InvalidInput for sampling that orders don't have."""
        for field, neutral in NEUTRAL.items():
            if (value := sampling.get(field)) not in neutral:
                raise InvalidInput(f"sampling has {field} {value}: give it to the Clotho environment instead")
        temperature, max_tokens = sampling["temperature"], sampling["max_tokens"]
        endpoint = {"base_url": agent.client.base_url, "inference": Inference.TOKENS}
        order = RunOrder.model_validate(
            {
                **self.config.order,
                "model": agent.model,
                "endpoint": endpoint | self.config.order.get("endpoint", {}),
                "temperature": temperature,
                "max_tokens": max_tokens,
                "group_size": 1,
            }
        )
        run = f"{self.config.run}-{job_key(agent.model, str(temperature), str(max_tokens))[:8]}"
        async with self._opening:
            if self._opened.get(run) != order:
                await client.open_run(run, order)
                self._opened[run] = order
        return run

    async def _end(self, client: AsyncRolloutClient, run: str, claim: str, order: ClaimOrder) -> None:
        """End the rollout of a request that was cancelled."""
        await asyncio.sleep(GRACE_SECONDS)
        # the same claim again tells its name: the cancel may have come before the first answer
        await client.cancel(run, (await client.claim(run, claim, order)).name)


def record(trace: vf.Trace, rows: Sequence[TrainingRow]) -> None:
    """Write the rows of one finished rollout, and its reward, into `trace`."""
    for row in rows:
        _record_branch(trace, row)
    first = rows[0]
    trace.record_reward("clotho", first.reward)
    trace.info["clotho"] = first.model_dump(mode="json", exclude={"ids", "mask", "logprobs"})
    trace.stop(STOPS.get(first.outcome, first.outcome.value))
    trace.ok = True


def _record_branch(trace: vf.Trace, row: TrainingRow) -> None:
    parent: int | None = None
    for start, end in _spans(row.mask):
        sampled = row.mask[start]
        message = vf.AssistantMessage(content="") if sampled else vf.UserMessage(content="")
        node = vf.MessageNode(
            parent=parent,
            message=message,
            sampled=sampled,
            token_ids=list(row.ids[start:end]),
            mask=list(row.mask[start:end]),
            logprobs=list(row.logprobs[start:end]) if sampled else [],
        )
        parent = len(trace.nodes)
        trace.nodes.append(node)
        if sampled:
            usage = vf.Usage(prompt_tokens=start, completion_tokens=end - start)
            trace.calls.append(vf.ModelCall(node=parent, usage=usage))


def _spans(mask: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Where sampled tokens, or others, follow one another."""
    for _, positions in groupby(range(len(mask)), mask.__getitem__):
        found = list(positions)
        yield found[0], found[-1] + 1
