"""A BaseEnv that survives outages of its trainer's API, and registers again with one that was restarted."""

import asyncio
import logging
import secrets
from datetime import date
from typing import Any

import wandb
from atroposlib.envs.base import BaseEnv

from clotho.config import secret
from clotho.errors import InvalidInput
from clotho.plugins.atropos.group_sender import retry_outages
from clotho.plugins.atropos.trainer_api import EnvUnknown, TrainerApi
from clotho.plugins.atropos.wandb_table import shown_rows

log = logging.getLogger("clotho.plugins.atropos")
TRAINER_SECONDS = 1.0
"""Seconds between two looks for a registered trainer."""


class ReconnectingEnv(BaseEnv):  # type: ignore[misc]
    """Replaces BaseEnv's requests to the API, since BaseEnv ends the process when one has failed three times."""

    trainer_api: TrainerApi
    env_id: int
    wandb_group: str | None
    wandb_project: str | None
    status_dict: dict[str, Any]
    """The API's last answer; empty before."""

    def __init__(self, config: Any, server_configs: Any, slurm: bool = False, testing: bool = False) -> None:
        super().__init__(config, server_configs, slurm, testing)
        variable = config.rollout_server_token_variable
        token = None if variable is None else secret(variable, "the token of the trainer's API")
        self.trainer_api = TrainerApi(config.rollout_server_url, token)
        self.status_dict = {}
        self._registering = asyncio.Lock()

    async def registered(self, env_id: int, name: str) -> None:
        """The API has just taken this environment under `env_id`."""

    async def current_env_id(self) -> int:
        """The id under which the API knows this environment now; raises ApiUnavailable."""
        try:
            # groups of a number that a restarted API doesn't know can keep it from making batches for anybody
            await self.trainer_api.status(self.env_id)
        except EnvUnknown:
            await self._register_again(self.env_id)
        return self.env_id

    async def get_status(self) -> None:
        """Read the status as BaseEnv does, through outages."""
        self.status_dict = await retry_outages(self._ask_status, "reach the trainer's API")
        self.max_num_workers = self.config.max_num_workers
        if self.max_num_workers == -1:
            self.max_num_workers = self.config.max_num_workers_per_node * len(self.server.servers)
        await self.server.update_weight(self.status_dict["env_weight"])

    async def get_server_info(self) -> None:
        """Take the trainer's batch size and longest row. Raises InvalidInput for groups larger than a batch."""
        info = await retry_outages(lambda: self.trainer_api.get("/info"), "ask for the trainer's batch size")
        if info["batch_size"] != -1:
            self.config.batch_size = info["batch_size"]
        if info["max_token_len"] != -1:
            self.max_token_len = info["max_token_len"]
        if self.config.group_size > self.config.batch_size:
            raise InvalidInput(
                f"groups of {self.config.group_size} don't fit the trainer's batches of {self.config.batch_size}"
            )

    async def setup_wandb(self) -> None:
        """Open the wandb run that the trainer names, through outages and with the token."""
        if not self.config.use_wandb:
            return
        while self.wandb_project is None:
            known = await retry_outages(
                lambda: self.trainer_api.get("/wandb_info"), "ask for the trainer's wandb project"
            )
            self.wandb_group, self.wandb_project = known["group"], known["project"]
            if self.wandb_project is None:
                await asyncio.sleep(TRAINER_SECONDS)
        given = self.config.wandb_name
        wandb.init(
            name=f"{given}-{date.today()}-{secrets.token_hex(3)}" if given else None,
            project=self.wandb_project,
            group=self.wandb_group,
            config=self.config.model_dump(),
        )

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Any = None) -> None:
        """The rows' conversations; of rows without messages, the text of their tokens."""
        keep = self.config.num_rollouts_per_group_for_logging
        shown = self.config.group_size if keep == -1 else keep
        self.rollouts_for_wandb.append(shown_rows(scored_data, shown, self.tokenizer.decode))
        del self.rollouts_for_wandb[: -self.config.num_rollouts_to_keep]

    async def evaluate_log(self, metrics: dict[str, Any], *arguments: Any, **options: Any) -> None:
        """Log metrics as BaseEnv does, and to wandb if a run of it is open."""
        await super().evaluate_log(metrics, *arguments, **options)
        if wandb.run is not None:
            wandb.log(metrics, step=self.curr_step)

    async def _register_env(self) -> dict[str, Any]:
        """Register once; BaseEnv repeats it until a trainer is there."""
        request = {
            "max_token_length": self.config.max_token_length,
            # the API refuses a registration without a name, and wandb_name may be None
            "desired_name": self.config.wandb_name or self.config.run,
            "weight": self.config.inference_weight,
            "min_batch_allocation": self.config.min_batch_allocation,
            "group_size": self.config.group_size,
        }
        answer: dict[str, Any] = await retry_outages(
            lambda: self.trainer_api.post("/register-env", request), "register with the trainer's API"
        )
        if answer["status"] == "success":
            await self.registered(answer["env_id"], answer["wandb_name"])
        return answer

    async def _ask_status(self) -> dict[str, Any]:
        try:
            return await self.trainer_api.status(self.env_id)
        except EnvUnknown:
            await self._register_again(self.env_id)
        return await self.trainer_api.status(self.env_id)

    async def _register_again(self, lost: int) -> None:
        async with self._registering:
            # another task has registered while this one waited for the lock
            if self.env_id != lost:
                return
            log.warning(
                "the API at %s has forgotten this environment: registering again", self.trainer_api.url
            )
            await self.register_env()
            await self.get_server_info()
