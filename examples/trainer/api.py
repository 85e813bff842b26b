"""The trainer's side of Atropos' API, stock or durable; outages are waited out."""

import sys
import time
from collections.abc import Iterator, Mapping
from types import TracebackType

import httpx
from pydantic import BaseModel, ConfigDict, JsonValue

from clotho.listeners.tokens import TokenAuth

POLL_SECONDS = 0.2
RETRY_SECONDS = 1.0
TIMEOUT = 60.0


class Registration(BaseModel):
    """A trainer's registration with the API."""

    model_config = ConfigDict(frozen=True)

    batch_size: int
    """Rows of a batch."""
    max_token_len: int
    """Environments drop groups with a row of this length or more."""
    num_steps: int
    starting_step: int = 0
    checkpoint_dir: str = ""
    save_checkpoint_interval: int = 0
    wandb_group: str = "example"
    wandb_project: str = "example"


class TrainingGroup(BaseModel):
    """One scored group of a batch; all lists have a row for each rollout."""

    model_config = ConfigDict(frozen=True)

    tokens: list[list[int]]
    masks: list[list[int]]
    """The token where it is trained on, else -100."""
    scores: list[float]
    inference_logprobs: list[list[float]] | None = None
    """Logprobs at sampling; 1.0 where not trained on."""
    generation_params: dict[str, JsonValue] | None = None
    group_id: str | None = None

    @property
    def weight_versions(self) -> list[list[str]] | None:
        """The weight versions that each row's trained tokens were sampled from; None if unknown."""
        said = (self.generation_params or {}).get("weight_versions")
        if not isinstance(said, list):
            return None
        return [[str(version) for version in row] if isinstance(row, list) else [] for row in said]


class TrainerApi:
    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT, auth=TokenAuth())

    def register(self, registration: Registration) -> None:
        """Register the trainer; environments may register once it has fetched a batch."""
        self._asked("POST", "/register", registration.model_dump())

    @property
    def step(self) -> int:
        """The number of batches that were formed, from the starting step on."""
        step = self._asked("GET", "/status")["current_step"]
        assert isinstance(step, int)
        return step

    def batches(self) -> Iterator[list[TrainingGroup]]:
        """Batches as they become ready, without end."""
        while True:
            batch = self._asked("GET", "/batch")["batch"]
            if batch is None:
                time.sleep(POLL_SECONDS)
                continue
            assert isinstance(batch, list)
            yield [TrainingGroup.model_validate(group) for group in batch]

    def _asked(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> dict[str, JsonValue]:
        """The answer, once there is one. Raises httpx.HTTPStatusError for a request that the API refuses."""
        said = False
        while True:
            try:
                answer = self._http.request(method, path, json=body)
            except httpx.TransportError as error:
                trouble = repr(error)
            else:
                if not answer.is_server_error:
                    content: dict[str, JsonValue] = answer.raise_for_status().json()
                    return content
                trouble = f"it answers {answer.status_code}"
            if not said:
                sys.stderr.write(f"waiting for the API: {trouble}\n")
                said = True
            time.sleep(RETRY_SECONDS)

    def __enter__(self) -> "TrainerApi":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._http.close()
