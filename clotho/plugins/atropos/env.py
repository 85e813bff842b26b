"""Atropos' BaseEnv around durable rollouts.

`collect_trajectories` starts or attaches to a group's workflow and waits. Atropos may cancel that wait whenever it
likes: the workflow goes on, and a sweeper delivers finished groups that no worker waits for.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from clotho.config import Settings
from clotho.environment import Environment
from clotho.environment.loading import make_environment
from clotho.errors import GroupRejected
from clotho.identifiers.ids import branch_group_id
from clotho.plugins.atropos.adapter_run import AdapterRun, open_run
from clotho.plugins.atropos.admission import TrainerLimits, check_deliverable, check_staleness
from clotho.plugins.atropos.config import ClothoEnvConfig, run_name_of
from clotho.plugins.atropos.evaluation import end_pause, evaluate_held_out
from clotho.plugins.atropos.group_sender import Registration, disconnect_stale_registration, retry_outages
from clotho.plugins.atropos.key_options import Secrets
from clotho.plugins.atropos.main import main, until_stopped
from clotho.plugins.atropos.pending_groups import ClaimedItem
from clotho.plugins.atropos.processing import GroupFile, process_groups, wandb_run
from clotho.plugins.atropos.reconnecting import ReconnectingEnv
from clotho.plugins.atropos.run_lock import held
from clotho.plugins.atropos.run_setup import (
    manifest_of,
    open_connections,
    served_model,
    with_run_settings,
    with_tokenizer,
)
from clotho.plugins.atropos.scored import BranchGroup, branch_groups_of, readable_branch_groups
from clotho.plugins.atropos.sweep import sweep
from clotho.plugins.atropos.trainable import require_trainable
from clotho.rollouts.run import AdapterRunConfig, RunManifest
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.ledger import Claim
from clotho.runs.trainer_steps import note_step
from clotho.training.siblings import Sibling

LAST_DELIVERIES = 30.0

log = logging.getLogger("clotho.plugins.atropos")

Trajectories = dict[str, Any] | list[dict[str, Any]] | None


class ClothoEnv(ReconnectingEnv):
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
    adapter_run: AdapterRun
    """While the run is open. Apart, since an author's own attributes have names like these."""

    def __init__(
        self, config: ClothoEnvConfig, server_configs: Any, slurm: bool = False, testing: bool = False
    ) -> None:
        # here, and not as the field's default: Atropos' command line gives every default as if it were asked for
        config.run = config.run or run_name_of(self.name or type(self).__name__)
        # BaseEnv would begin another file where there is one
        path, config.data_path_to_save_groups = config.data_path_to_save_groups, None
        servers = with_tokenizer(self.secrets.reveal(server_configs), config.tokenizer_name)
        super().__init__(config, servers, slurm, testing)
        config.data_path_to_save_groups = path
        # with masks in place of keys, unlike `servers`: who needs the keys calls `secrets.reveal`
        self.server_configs = server_configs
        # Atropos and a subclass call the same name: what the subclass hands out is drawn once, then claimed
        self._draw = self.get_next_item
        self.__dict__["get_next_item"] = self._next_claimed

    # For environment authors to override.

    @classmethod
    def config_init(cls) -> tuple[ClothoEnvConfig, Any]:
        return cls.env_config_cls(), APIServerConfig()

    async def setup(self) -> None:
        self.environment = await asyncio.to_thread(
            make_environment,
            self.adapter_run.manifest.environment,
            self.adapter_run.manifest.environment_config,
        )
        await self.environment.setup()

    async def get_next_item(self) -> Any:
        """The environment's next item; None ends the dataset."""
        return await self.environment.next_item()

    async def evaluate(self, *_: Any, **__: Any) -> None:
        """Roll a held-out set out, and log its metrics."""
        await evaluate_held_out(self)

    def make_manifest(self, model: str) -> RunManifest:
        return manifest_of(self.config, model)

    def task_queues(self, settings: Settings) -> TaskQueues:
        """The queues that serve the run."""
        return TaskQueues()

    # Atropos' three commands.

    @classmethod
    def cli(cls) -> None:
        main(cls, super().cli)

    async def env_manager(self) -> None:
        async with self.opened():
            await require_trainable(self.adapter_run, accept_chat=self.config.accept_chat_data)
            self.serving = True
            # an evaluation that was killed left its pause behind
            await end_pause(self.adapter_run.connections.journal, self.adapter_run.manifest.run)
            background = [
                asyncio.create_task(sweep(self)),
                asyncio.create_task(self.adapter_run.show_undelivered()),
            ]
            try:
                with until_stopped():
                    await super().env_manager()
            finally:
                # first no delivery can begin any more; those that have begun are shielded, and arrive
                for task in (*background, *self.workers):
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                await self.adapter_run.sender.finish(LAST_DELIVERIES)

    async def process_manager(self) -> None:
        async with self.opened():
            # BaseEnv's own manager rolls out one group after another
            await process_groups(self)

    async def _run_evaluate(self) -> None:
        async with self.opened():
            with wandb_run(self.config, "evaluate"):
                await super()._run_evaluate()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open Temporal, the store and the run, and hold the run's lock."""
        connections = await open_connections(self.config)
        endpoint, model = served_model(self.server_configs, self.config)
        manifest = with_run_settings(self.make_manifest(model), connections.settings, self.config)
        # before the run is read: claims that another adapter still makes would be missed
        async with held(connections.journal, manifest.run) as run_lock:
            self.adapter_run = await open_run(
                connections,
                run_lock,
                manifest,
                endpoint,
                AdapterRunConfig(task_queues=self.task_queues(connections.settings)),
                attempts=self.config.group_attempts,
                draw=self._draw,
                api=self.trainer_api,
                current_env=self.current_env_id,
                delivers=not self.process_mode,
            )
            if self.secrets.given and self.config.api_key_variable is None:
                log.warning(
                    "workers aren't told openai.api_key: name their variable with env.api_key_variable"
                )
            path = self.config.data_path_to_save_groups
            self.jsonl_writer = GroupFile(Path(path)) if path is not None else None
            try:
                yield
            finally:
                await self.trainer_api.aclose()
                if self.jsonl_writer is not None:
                    self.jsonl_writer.close()

    # From the dataset to the API.

    async def _next_claimed(self) -> ClaimedItem | None:
        return await self.adapter_run.next_claimed(self.curr_step, self.config.max_open_groups)

    async def handle_env(self, item_uuid: str) -> Trajectories:
        item = self.running_items[item_uuid]["item"]
        claim = await self.adapter_run.claim_of(item, self.curr_step)
        # from Atropos' backlog: meanwhile the sweeper has taken the group, or delivered it
        if not self.adapter_run.is_free(claim):
            self.running_items.pop(item_uuid, None)
            return None
        with self.adapter_run.pending.hold(claim):
            done: Trajectories = await super().handle_env(item_uuid)
        # a worker that ended without delivering leaves its claim to the next one; a cancelled one doesn't get here,
        # since Atropos has put its item into its backlog
        self.adapter_run.pending.put_back(claim)
        return done

    async def collect_trajectories(self, item: Any) -> tuple[Trajectories, list[Any]]:
        """The item's scored group, one ScoredDataGroup for each branch; None once it is delivered or dropped."""
        claim = await self.adapter_run.claim_of(item, self.curr_step)
        if not self.process_mode and await self.adapter_run.ledger.delivery(claim.group) is not None:
            return None, []
        branch_groups = await self.adapter_run.collect(claim, partial(self._convert, claim))
        if branch_groups is None:
            return None, []
        groups = [branch_group.wire() for branch_group in branch_groups]
        return (groups[0] if len(groups) == 1 else groups), []

    async def _convert(self, claim: Claim, siblings: tuple[Sibling, ...]) -> tuple[BranchGroup, ...]:
        size = self.adapter_run.manifest.group_size
        if self.process_mode:
            return await asyncio.to_thread(
                readable_branch_groups, claim.group, siblings, size, self.config.exclusion
            )
        limit = self.max_token_len if self.max_token_len > 0 else None
        branch_groups = await asyncio.to_thread(
            branch_groups_of, claim.group, siblings, size, limit, self.config.exclusion
        )
        check_staleness(claim, branch_groups, self._trainer_step(), self.config.max_weight_lag)
        return branch_groups

    async def handle_send_to_api(
        self,
        scored_data: Any,
        item: Any = None,
        do_send_to_api: bool = True,
        abort_on_any_max_length_exceeded: bool = True,
    ) -> None:
        """Send groups as BaseEnv does; those that it would drop silently are dropped with a reason."""
        groups = [group for group in _listed(scored_data) if group is not None]
        claim = await self.adapter_run.claim_of(item, self.curr_step)
        for number, group in enumerate(groups):
            # hooks may return groups of their own, without an id
            group.setdefault("group_id", branch_group_id(claim.group, number))
            # BaseEnv calls .get on its value, which may be None
            group["group_overrides"] = group.get("group_overrides") or {}
        if do_send_to_api:
            try:
                config = self.config
                limits = TrainerLimits(
                    config.group_size, self.max_token_len, config.ensure_scores_are_not_same
                )
                check_deliverable(claim, groups, limits)
            except GroupRejected as rejected:
                return await self.adapter_run.drop(claim, rejected)
        await super().handle_send_to_api(groups, item, do_send_to_api, abort_on_any_max_length_exceeded)

    async def _send_scored_data_to_api(self, scored_data: Any) -> None:
        # BaseEnv's own loses the group if its worker is cancelled meanwhile, and takes a 4xx for delivered
        branch_groups = _listed(scored_data)
        await self.adapter_run.sender.deliver(branch_groups[0]["group_id"].partition("~b")[0], branch_groups)

    # The trainer's API.

    async def current_env_id(self) -> int:
        """The registration to deliver under. Raises InvalidInput where another adapter has the run now."""
        await self.adapter_run.run_lock.confirm()
        return await super().current_env_id()

    async def registered(self, env_id: int, name: str) -> None:
        now = Registration(url=self.trainer_api.url, env_id=env_id, name=name)
        await disconnect_stale_registration(
            self.adapter_run.connections.journal, self.trainer_api, self.adapter_run.manifest.run, now
        )

    async def get_server_info(self) -> None:
        await super().get_server_info()
        self.adapter_run.ready.set()

    async def get_status(self) -> None:
        await super().get_status()
        self.adapter_run.connections.deliveries.show_queue(self.status_dict)
        step = self._trainer_step()
        if step != self._noted_step:
            journal, run = self.adapter_run.connections.journal, self.adapter_run.manifest.run
            await retry_outages(lambda: note_step(journal, run, step), "note the trainer's step")
            self._noted_step = step

    async def env_step_checks(self) -> None:
        before = self.curr_step
        await super().env_step_checks()
        if self.curr_step != before:
            await self.adapter_run.drop_stale(self._trainer_step(), self.config.max_weight_lag)

    def _trainer_step(self) -> int:
        # BaseEnv takes a new step over after get_status, in env_step_checks
        step: int = self.status_dict["current_step"] if self.status_dict else self.curr_step
        return step

    # Metrics.

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        metrics = {**(wandb_metrics or {}), **self.adapter_run.tally.flush()}
        if self.serving:
            metrics["train/open_groups"] = len(self.adapter_run.pending)
            metrics["train/groups_sent_again"] = self.adapter_run.sender.sent_again
        await super().wandb_log(metrics)


def _listed(scored_data: Any) -> list[Any]:
    return scored_data if isinstance(scored_data, list) else [scored_data]
