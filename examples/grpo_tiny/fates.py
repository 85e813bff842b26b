"""The fates of a training run's groups, from the ledger, the API's queue and the trainer's steps."""

import asyncio
from collections import Counter

from clotho.frozen_model import FrozenModel
from clotho.identifiers.keys import sending_prefix
from clotho.plugins.atropos.api.queue import Queue
from clotho.runs.ledger import Ledger
from examples.grpo_tiny.chain import Chain


class Fates(FrozenModel):
    """Groups that were drawn are unfinished, dropped or accepted; accepted ones are trained on, waiting or lost.

    A group's further rows, where it has branches, travel with its first and aren't counted apart.
    """

    drawn: int
    unfinished: int
    """Open, or not delivered, when training ended."""
    dropped: dict[str, int]
    """Number of groups that the adapter dropped, by reason."""
    accepted: int
    """Number of groups that the API accepted."""
    trained: int
    waiting: int
    """Groups in the API's queue when training ended."""
    lost: tuple[str, ...]
    trained_twice: tuple[str, ...]
    sent_again: int
    """Groups that an adapter brought to the API after one before it may have: the API takes them once."""
    served_again: int
    """Groups that the API handed to the trainer once more: the trainer leaves them out."""


async def fates_of(chain: Chain) -> Fates:
    """The fates of a stopped chain's groups: the queue's file has one user at a time."""
    journal = chain.cluster.open_journal()
    ledger = Ledger(journal, chain.training.run)
    claims = await ledger.load()
    groups = [claim.group for claim in claims]
    deliveries = [await ledger.delivery(group) for group in groups]
    reasons = [each.reason for each in deliveries if each is not None and each.reason is not None]
    sendings = [len(await journal.keys(sending_prefix(group))) for group in groups]
    times, again = await asyncio.to_thread(_in_steps, chain)
    accepted, held = await asyncio.to_thread(_in_queue, chain, groups)
    trained = accepted & times.keys()
    return Fates(
        drawn=len(groups),
        unfinished=len(set(groups) - accepted) - len(reasons),
        dropped=dict(Counter(reasons)),
        accepted=len(accepted),
        trained=len(trained),
        waiting=len((accepted & held) - trained),
        lost=tuple(sorted(accepted - trained - held)),
        trained_twice=tuple(sorted(group for group, count in times.items() if count > 1)),
        sent_again=sum(count > 1 for count in sendings),
        served_again=again,
    )


def _in_steps(chain: Chain) -> tuple[Counter[str], int]:
    """The number of times that each group was trained on, and the number of groups handed out again."""
    times = Counter(str(group.group_id) for batch in chain.steps.batches() for group in batch)
    return times, len(chain.steps.served_again())


def _in_queue(chain: Chain, groups: list[str]) -> tuple[set[str], set[str]]:
    """The groups that were ever accepted, and those that are still held for the trainer."""
    queue = Queue(chain.queue)
    try:
        return queue.known(groups), {str(group) for group in queue.held()}
    finally:
        queue.close()
