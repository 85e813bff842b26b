"""The schema of task.toml: every key that Harbor 0.25 knows, with its types and defaults; others are errors."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    field_validator,
    model_validator,
)

SERVICE = "main"
"""The service of a compose file in which the agent works."""
SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG])", re.IGNORECASE)
MIB = {"k": 1 / 1024, "m": 1.0, "g": 1024.0}


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _seconds(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError("give a finite number of seconds above 0")
    return value


def _size_mb(value: Any) -> Any:
    """Harbor drops a bare number; "2G" is 2048 MiB."""
    if not isinstance(value, str) or (found := SIZE.fullmatch(value.strip())) is None:
        raise ValueError('give a number with K, M or G as text, such as "2G"')
    return math.ceil(float(found[1]) * MIB[found[2].lower()])


def _none_of_zero(value: Any) -> Any:
    """Engines take a bound of 0 as none."""
    return None if value == 0 and not isinstance(value, bool) else value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _user(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _number(value: Any) -> Any:
    # pydantic takes true for 1
    if isinstance(value, bool):
        raise ValueError("give a number")
    return value


def _path(value: str) -> str:
    if not value.strip("/.") or ".." in value.split("/"):
        raise ValueError("give a file or folder, without ..")
    return value


def _relative(value: str) -> str:
    if value.startswith("/"):
        raise ValueError("give a relative path")
    return _path(value).rstrip("/")


Seconds = Annotated[float, AfterValidator(_seconds)]
Size = Annotated[int, BeforeValidator(_size_mb)]
User = Annotated[str, BeforeValidator(_user)]
Cpus = Annotated[
    Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)] | None,
    BeforeValidator(_none_of_zero),
]
Megabytes = Annotated[Annotated[int, Field(gt=0)] | None, BeforeValidator(_none_of_zero)]
ArtifactPath = Annotated[str, AfterValidator(_path)]
NetworkMode = Literal["public", "no-network", "allowlist"]


class Network(Table):
    network_mode: NetworkMode | None = None
    allowed_hosts: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _hosts(self) -> "Network":
        if self.allowed_hosts is not None and self.network_mode != "allowlist":
            raise ValueError('allowed_hosts goes with network_mode = "allowlist" only')
        return self


class Author(Table):
    name: str
    email: str | None = None


class Package(Table):
    """[task]: the task's published name."""

    name: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


class Artifact(Table):
    source: ArtifactPath
    destination: Annotated[str, AfterValidator(_relative)] | None = None
    exclude: tuple[str, ...] = ()
    service: str | None = None


class Agent(Network):
    timeout_sec: Seconds | None = None
    user: User | None = None


class Healthcheck(Table):
    command: str
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    start_interval_sec: Seconds = 5.0
    retries: int = Field(default=3, ge=1)


class McpServer(Table):
    name: str
    transport: Literal["sse", "streamable-http", "http", "stdio"] = "sse"
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    headers: dict[str, str] = {}


class Tpu(Table):
    type: str
    topology: str


class Container(Network):
    """[environment]."""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: Annotated[Literal["linux", "windows"], BeforeValidator(_lower)] = "linux"
    workdir: str | None = Field(default=None, pattern="^/")
    env: dict[str, str] = {}
    skills_dir: str | None = None
    cpus: Cpus = None
    memory_mb: Megabytes = None
    storage_mb: Megabytes = None
    memory: Size | None = None
    storage: Size | None = None
    gpus: int | None = Field(default=None, ge=0)
    gpu_types: tuple[str, ...] | None = None
    tpu: Tpu | None = None
    allow_internet: bool | None = None
    healthcheck: Healthcheck | None = None
    mcp_servers: tuple[McpServer, ...] = ()

    @model_validator(mode="after")
    def _one_size(self) -> "Container":
        for new, old in (("memory_mb", "memory"), ("storage_mb", "storage")):
            one, other = getattr(self, new), getattr(self, old)
            if None not in (one, other) and one != other:
                raise ValueError(f"{new} and {old} are {one} and {other} MiB: give one of them")
        return self

    @property
    def memory_limit_mb(self) -> int | None:
        return self.memory if self.memory_mb is None else self.memory_mb

    @property
    def storage_limit_mb(self) -> int | None:
        return self.storage if self.storage_mb is None else self.storage_mb

    @property
    def network(self) -> NetworkMode | None:
        """None where the file says nothing."""
        if self.network_mode is not None or self.allow_internet is None:
            return self.network_mode
        return "public" if self.allow_internet else "no-network"


class Collect(Table):
    command: str
    service: str = SERVICE
    timeout_sec: Seconds = 60.0
    user: User | None = None


class Verifier(Network):
    timeout_sec: Seconds = 600.0
    user: User | None = None
    env: dict[str, str] = {}
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Container | None = None
    collect: tuple[Collect, ...] = ()

    @model_validator(mode="after")
    def _one_mode(self) -> "Verifier":
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError('environment_mode = "shared" has no [verifier.environment]')
        return self

    @property
    def separate(self) -> bool:
        return self.environment_mode == "separate" or self.environment is not None


class Solution(Table):
    env: dict[str, str] = {}


class Settings(Table):
    """[metadata.clotho]: what a task says to Clotho alone; other readers take it for a note."""

    keep_services: StrictBool | None = None
    verify_in: Literal["image", "container"] | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)

    @field_validator("reward_range")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not (math.isfinite(value[0]) and math.isfinite(value[1]) and value[0] < value[1]):
            raise ValueError("give the lowest and the highest reward")
        return value


class Step(Table):
    name: str
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: tuple[ArtifactPath | Artifact, ...] = ()


class Metadata(BaseModel):
    """[metadata], which is anybody's but for one table."""

    model_config = ConfigDict(frozen=True, extra="allow")

    clotho: Settings = Settings()


class TaskFile(Table):
    """A whole task.toml; an empty one is fine."""

    schema_version: str = Field(default="1.4", alias="version", pattern=r"^\d+\.\d+$")
    task: Package | None = None
    metadata: Metadata = Field(default_factory=lambda: Metadata())
    source: str | None = None
    artifacts: tuple[ArtifactPath | Artifact, ...] = ()
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: tuple[Step, ...] = ()
    solution: Solution = Solution()
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    environment: Container = Container()

    @property
    def agent_network(self) -> NetworkMode | None:
        """None where the file says nothing."""
        return self.agent.network_mode or self.environment.network

    @property
    def grading_network(self) -> NetworkMode | None:
        """The network of the tests: that of [verifier], else that of the sandbox in which they run."""
        if self.verifier.environment is not None:
            return self.verifier.network_mode or self.verifier.environment.network
        return self.verifier.network_mode or self.environment.network or self.agent.network_mode


def known_keys(path: tuple[str | int, ...]) -> Mapping[str, object]:
    """The keys of the table at `path`; none where it isn't a table of the schema."""
    kind: Any = TaskFile
    for name in path:
        if isinstance(name, int):
            continue
        field = kind.model_fields.get(name)
        if field is None:
            return {}
        kind = _table_of(field.annotation)
        if kind is None:
            return {}
    fields: Mapping[str, object] = kind.model_fields
    return fields


def _table_of(annotation: Any) -> type[BaseModel] | None:
    """The table that a field holds, or holds a list of."""
    if isinstance(annotation, type) and issubclass(annotation, Table | Metadata):
        return annotation
    inner = (_table_of(each) for each in getattr(annotation, "__args__", ()))
    return next((table for table in inner if table is not None), None)
