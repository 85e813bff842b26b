"""Atropos' BaseEnv around durable rollouts.

`collect_trajectories` starts or attaches to a group's workflow and waits. Atropos may cancel that wait whenever it
likes: the workflow goes on, and a sweeper delivers what is finished and in nobody's hands.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from clotho.atropos.book import Book
from clotho.atropos.config import ClothoEnvConfig
from clotho.atropos.delivery import Courier, Registration, disconnect_ghost, outlasting
from clotho.atropos.evaluation import end_pause, evaluate_held_out
from clotho.atropos.fitness import Demands, check_deliverable, check_staleness
from clotho.atropos.group_file import GroupFile
from clotho.atropos.items import ClaimedItem, Items, json_item
from clotho.atropos.ledger import Claim, Ledger
from clotho.atropos.main import main
from clotho.atropos.metrics import Tally
from clotho.atropos.opening import Connections, manifest_of, open_connections, served_model
from clotho.atropos.patient import PatientEnv
from clotho.atropos.processing import process_groups
from clotho.atropos.rollouts import Groups
from clotho.atropos.scored import Sibling, Wave, read_siblings, untrained_wave, waves_of
from clotho.atropos.secrets import Secrets
from clotho.atropos.trainable import require_trainable
from clotho.config import Settings
from clotho.drawn_runs import open_drawn_run
from clotho.entries import DrawnOrder, Endpoint, Item, RunManifest
from clotho.environment import Environment, make_environment
from clotho.errors import ClothoError, JournalCorrupt, Unavailable, Unfit
from clotho.records import Stations
from clotho.trainer_steps import note_step

SWEEP_SECONDS = 1.0
LAST_DELIVERIES = 30.0
HOOK_FAILURES = 3
"""Times that an author's hook may fail for one group before it is dropped."""

log = logging.getLogger("clotho.atropos")

Trajectories = dict[str, Any] | list[dict[str, Any]] | None


@dataclass(frozen=True)
class Durable:
    """An open run, and what is left of it."""

    connections: Connections
    manifest: RunManifest
    endpoint: Endpoint
    groups: Groups
    ledger: Ledger
    book: Book
    items: Items
    courier: Courier
    tally: Tally
    ready: asyncio.Event
    """Set once the API has said what it takes."""


class ClothoEnv(PatientEnv):
    """The environment that `--env.environment` names, rolled out as one run."""

    name: ClassVar[str | None] = "clotho"
    env_config_cls: ClassVar[type[ClothoEnvConfig]] = ClothoEnvConfig
    secrets: ClassVar[Secrets] = Secrets()
    """Keys that the command line held."""
    process_mode = False
    """Set by Atropos for `process`."""
    serving = False
    _noted_step: int | None = None

    environment: Environment
    durable: Durable
    """While the run is open. Apart, since an author's own attributes have names like these."""

    def __init__(
        self, config: ClothoEnvConfig, server_configs: Any, slurm: bool = False, testing: bool = False
    ) -> None:
        # BaseEnv would begin another file where there is one.
        path, config.data_path_to_save_groups = config.data_path_to_save_groups, None
        super().__init__(config, self.secrets.reveal(server_configs), slurm, testing)
        config.data_path_to_save_groups = path
        self.jsonl_writer = GroupFile(Path(path)) if path is not None else None
        self.server_configs = server_configs
        # Atropos and a subclass call the same name: what the subclass hands out is drawn once, then claimed.
        self._draw = self.get_next_item
        self.__dict__["get_next_item"] = self._next_claimed

    @classmethod
    def config_init(cls) -> tuple[ClothoEnvConfig, Any]:
        return cls.env_config_cls(), APIServerConfig()

    @classmethod
    def cli(cls) -> None:
        main(cls, super().cli)

    async def setup(self) -> None:
        self.environment = await asyncio.to_thread(
            make_environment, self.durable.manifest.environment, self.durable.manifest.environment_config
        )
        await self.environment.setup()

    async def get_next_item(self) -> Any:
        """The environment's next item; None ends the dataset."""
        return await self.environment.get_next_item()

    async def evaluate(self, *_: Any, **__: Any) -> None:
        """Roll a held-out set out, and log what it comes to."""
        await evaluate_held_out(self)

    async def env_manager(self) -> None:
        async with self.opened():
            await require_trainable(self.durable, accept_chat=self.config.accept_chat_data)
            self.serving = True
            await end_pause(self.durable.connections.journal, self.durable.manifest.run)
            sweeper = asyncio.create_task(self._sweep())
            try:
                await super().env_manager()
            finally:
                sweeper.cancel()
                await asyncio.gather(sweeper, return_exceptions=True)
                await self.durable.courier.finish(LAST_DELIVERIES)

    async def process_manager(self) -> None:
        async with self.opened():
            await process_groups(self)

    async def _run_evaluate(self) -> None:
        async with self.opened():
            await super()._run_evaluate()

    async def collect_trajectories(self, item: Any) -> tuple[Trajectories, list[Any]]:
        """The item's scored group, one ScoredDataGroup a wave; None once it is delivered or dropped."""
        claim = await self._claim_of(item)
        if not self.process_mode and await self.durable.ledger.delivery(claim.group) is not None:
            return None, []
        try:
            entry = await self.durable.groups.until_scored(
                claim, lambda why: log.warning("%s: %s", claim.group, why)
            )
            siblings = await read_siblings(self.durable.groups.journal, entry)
            waves = await self._convert(claim, siblings)
        except Unfit as unfit:
            await self._drop(claim, unfit)
            return None, []
        except JournalCorrupt as corrupt:
            await self._drop(claim, Unfit("corrupt", str(corrupt)))
            return None, []
        self.durable.tally.add(entry, siblings)
        groups = [wave.wire() for wave in waves]
        return (groups[0] if len(groups) == 1 else groups), []

    async def handle_env(self, item_uuid: str) -> Trajectories:
        item = self.running_items[item_uuid]["item"]
        claim = await self._claim_of(item)
        if not self._is_free(claim):
            self.running_items.pop(item_uuid, None)
            return None
        with self.durable.book.hold(claim):
            done: Trajectories = await super().handle_env(item_uuid)
        # A worker that ended without delivering leaves its claim to the next one.
        self.durable.book.put_back(claim)
        return done

    async def handle_send_to_api(
        self,
        scored_data: Any,
        item: Any = None,
        do_send_to_api: bool = True,
        abort_on_any_max_length_exceeded: bool = True,
    ) -> None:
        """As BaseEnv's; what that would pass over in silence is dropped with a reason."""
        groups = [group for group in _listed(scored_data) if group is not None]
        claim = await self._claim_of(item)
        for number, group in enumerate(groups):
            group.setdefault("group_id", claim.group if number == 0 else f"{claim.group}~w{number}")
            group["group_overrides"] = group.get("group_overrides") or {}
        if do_send_to_api:
            try:
                check_deliverable(claim, groups, self._demands())
            except Unfit as unfit:
                return await self._drop(claim, unfit)
        await super().handle_send_to_api(groups, item, do_send_to_api, abort_on_any_max_length_exceeded)

    async def _send_scored_data_to_api(self, scored_data: Any) -> None:
        waves = _listed(scored_data)
        await self.durable.courier.deliver(waves[0]["group_id"].partition("~w")[0], waves)

    async def registered(self, env_id: int, name: str) -> None:
        now = Registration(url=self.trainer_api.url, env_id=env_id, name=name)
        await disconnect_ghost(
            self.durable.connections.journal, self.trainer_api, self.durable.manifest.run, now
        )

    async def get_server_info(self) -> None:
        await super().get_server_info()
        self.durable.ready.set()

    async def get_status(self) -> None:
        await super().get_status()
        step = self._trainer_step()
        if step != self._noted_step:
            journal, run = self.durable.connections.journal, self.durable.manifest.run
            await outlasting(lambda: note_step(journal, run, step), "note the trainer's step")
            self._noted_step = step

    async def env_step_checks(self) -> None:
        before = self.curr_step
        await super().env_step_checks()
        if self.curr_step != before:
            await self._drop_stale()

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Any = None) -> None:
        """The rows' text; of rows without tokens, the conversation."""
        keep = self.config.num_rollouts_per_group_for_logging
        shown = slice(self.config.group_size if keep == -1 else keep)
        said = scored_data.get("messages") or [[]] * len(scored_data["tokens"])
        texts = [
            self.tokenizer.decode(tokens)
            if tokens
            else "\n".join(f"{message['role']}: {message['content']}" for message in messages)
            for tokens, messages in zip(scored_data["tokens"][shown], said[shown], strict=True)
        ]
        self.rollouts_for_wandb.append(list(zip(texts, scored_data["scores"], strict=False)))
        del self.rollouts_for_wandb[: -self.config.num_rollouts_to_keep]

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        metrics = {**(wandb_metrics or {}), **self.durable.tally.flush()}
        if self.serving:
            metrics["train/open_groups"] = len(self.durable.book)
            metrics["train/groups_sent_again"] = self.durable.courier.sent_again
        await super().wandb_log(metrics)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Temporal, the store and the run, with what is left of it."""
        self.durable = await self._open_run(await open_connections(self.config))
        if self.secrets.given and self.config.api_key_variable is None:
            log.warning("workers aren't told openai.api_key: name their variable with env.api_key_variable")
        try:
            yield
        finally:
            await self.trainer_api.aclose()
            if self.jsonl_writer is not None:
                self.jsonl_writer.close()

    async def _open_run(self, connections: Connections) -> Durable:
        journal = connections.journal
        endpoint, model = served_model(self.server_configs, self.config)
        manifest = self.make_manifest(model)
        order = DrawnOrder(stations=self.stations(connections.settings))
        await open_drawn_run(journal, manifest, endpoint, order)
        ledger = Ledger(journal, manifest.run)
        claims = await ledger.load()
        book = Book(claims if self.process_mode else await ledger.undelivered(claims))
        return Durable(
            connections=connections,
            manifest=manifest,
            endpoint=endpoint,
            groups=Groups(
                client=connections.client,
                journal=journal,
                manifest=manifest,
                order=order,
                attempts=self.config.group_attempts,
            ),
            ledger=ledger,
            book=book,
            items=Items(self._draw, ledger.drawn),
            courier=Courier(ledger, self.trainer_api, self.current_env_id, book.settle),
            tally=Tally(),
            ready=asyncio.Event(),
        )

    def make_manifest(self, model: str) -> RunManifest:
        return manifest_of(self.config, model)

    def stations(self, settings: Settings) -> Stations:
        """The queues that serve the run."""
        return Stations()

    async def _next_claimed(self) -> ClaimedItem | None:
        """What is in nobody's hands; else a new item, if not too many are open."""
        claim = self.durable.book.waiting()
        if claim is None:
            if not self.process_mode and len(self.durable.book) >= self.config.max_open_groups:
                return None
            item = await self.durable.items.next()
            if item is None:
                return None
            claim = await self._claim(item)
        return self.durable.book.offer(claim)

    async def _claim_of(self, item: Any) -> Claim:
        """The item's claim; one that Atropos didn't get from here is claimed now."""
        if isinstance(item, ClaimedItem):
            return item.claim
        plain = json_item(item)
        found = self.durable.book.find(plain)
        if found is None:
            found = await self._claim(plain)
            self.durable.book.offer(found)
        return found

    async def _claim(self, item: Item) -> Claim:
        claim: Claim = await outlasting(
            lambda: self.durable.ledger.claim(item, self.curr_step), "claim an item"
        )
        return claim

    def _is_free(self, claim: Claim) -> bool:
        """Whether nobody waits for the claim's group, or brings it to the API."""
        return (
            claim in self.durable.book
            and not self.durable.book.is_busy(claim)
            and not self.durable.courier.has(claim.group)
        )

    async def _convert(self, claim: Claim, siblings: tuple[Sibling, ...]) -> tuple[Wave, ...]:
        limit = self.max_token_len if self.max_token_len > 0 and not self.process_mode else None
        size = self.durable.manifest.group_size
        try:
            waves = await asyncio.to_thread(waves_of, claim.group, siblings, size, limit)
            if not self.process_mode:
                check_staleness(claim, waves, self._trainer_step(), self.config.max_weight_lag)
        except Unfit as unfit:
            if not self.process_mode:
                raise
            return (untrained_wave(claim.group, siblings, unfit.reason),)
        return waves

    async def _drop(self, claim: Claim, unfit: Unfit) -> None:
        if claim not in self.durable.book:
            return
        self.durable.tally.add_dropped(unfit.reason)
        if self.process_mode:
            log.warning("%s left out (%s): %s", claim.group, unfit.reason, unfit)
            return self.durable.book.settle(claim.group)
        await self.durable.courier.drop(claim.group, unfit.reason, str(unfit))

    def _demands(self) -> Demands:
        return Demands(self.config.group_size, self.max_token_len, self.config.ensure_scores_are_not_same)

    def _trainer_step(self) -> int:
        step: int = self.status_dict["current_step"] if self.status_dict else self.curr_step
        return step

    async def _drop_stale(self) -> None:
        """What was drawn too long ago for the trainer's weights is not sampled any further."""
        if self.config.max_weight_lag is None:
            return
        for claim in self.durable.book.all():
            lag = self._trainer_step() - claim.step
            if lag > self.config.max_weight_lag and await self.durable.groups.scored(claim) is None:
                await self.durable.groups.cancel(claim)
                await self._drop(claim, Unfit("stale", f"{claim.group}: not sampled within {lag} steps"))

    async def _sweep(self) -> None:
        """Deliver finished groups that no worker waits for."""
        await self.durable.ready.wait()
        while True:
            try:
                for claim in await self.durable.ledger.finished(self.durable.book.idle()):
                    if self._is_free(claim):
                        await self._sweep_up(claim)
            except ClothoError as error:
                log.warning("sweeping: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _sweep_up(self, claim: Claim) -> None:
        """Through the author's hooks, as a worker of Atropos would."""
        item = self.durable.book.item(claim)
        with self.durable.book.hold(claim):
            try:
                trajectories, _ = await self.collect_trajectories(item)
                if trajectories is not None:
                    trajectories = await self.postprocess_histories(trajectories)
                if claim in self.durable.book:
                    await self.handle_send_to_api(trajectories, item)
            except Unavailable:
                raise
            except Exception:
                log.exception("%s: a hook of the environment failed", claim.group)
                if self.durable.book.put_back(claim) >= HOOK_FAILURES:
                    failed = Unfit("environment_failed", f"its hooks failed {HOOK_FAILURES} times")
                    await self._drop(claim, failed)


def _listed(scored_data: Any) -> list[Any]:
    return scored_data if isinstance(scored_data, list) else [scored_data]
