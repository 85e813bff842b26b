"""verifiers' client, in the interpreter that has verifiers: asks as standard input says, and prints what it got.

A second line on standard input cancels what is still waited for.
"""

import asyncio
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.serve import EnvClient

from tests.trainers.plugins.numbered_tasks import NumberedTasks
from tests.trainers.wire import Asked, Branch, Got


async def episode(client: EnvClient, asked: Asked, task: vf.Task) -> None:
    server = vf.TrainClientConfig(base_url=asked.base_url, api_key_var="NO_KEY")
    found = await client.run(
        server, asked.model, vf.SamplingConfig(**asked.sampling), task.data.model_dump(mode="json")
    )
    got = Got(
        task=task.data.item["number"],
        same_task=(found.task.key, found.task.hash) == (task.key, task.hash),
        ok=found.ok,
        errors=[f"{error.type}: {error.message}" for error in found.errors],
    )
    for trace in found.traces:
        branches = [
            Branch(ids=each.token_ids, mask=each.sampled_mask, logprobs=each.logprobs)
            for each in trace.branches
        ]
        rollout = trace.info["clotho"]["rollout"]
        told = {"rollout": rollout, "reward": trace.reward, "stopped": trace.stop_condition}
        got = got.model_copy(update={**told, "branches": branches})
    print(got.model_dump_json(), flush=True)  # noqa: T201


async def main() -> None:
    lines = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    asked = Asked.model_validate_json(await lines.readline())
    client, tasks = EnvClient(asked.address), list(NumberedTasks(vf.TasksetConfig()))
    await client.wait_for_server_startup()
    running = [asyncio.create_task(episode(client, asked, tasks[number])) for number in asked.tasks]
    cancelled = asyncio.create_task(lines.readuntil())  # fails at the end of input, which cancels nothing
    done = asyncio.gather(*running, return_exceptions=True)
    either: list[asyncio.Future[Any]] = [cancelled, done]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if cancelled.done() and cancelled.exception() is None:
        for task in running:
            task.cancel()
    failures = [each for each in await done if isinstance(each, Exception)]
    await client.close()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    if failures:
        raise failures[0]


if __name__ == "__main__":
    asyncio.run(main())
