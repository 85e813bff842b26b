"""Settings of worker processes: their sizes, their metrics and traces, and who is told what has become of runs."""

from pydantic import Field, PositiveInt

from clotho.frozen_model import FrozenModel


class RateLimit(FrozenModel):
    """The limits of one key of a model server, over all processes that use it. None: no limit."""

    requests_per_minute: PositiveInt | None = None
    tokens_per_minute: PositiveInt | None = None


class WorkerSettings(FrozenModel):
    """Sizes of a worker process."""

    max_cached_workflows: int = 2_000
    """Workflows that a process keeps in memory, so that they need no replay."""
    max_workflow_tasks: int = 100
    """Workflow tasks that a process has open at once, on each of its queues. Each step made in it holds one.

    Of more than it gets done in `cached_seconds`, each begins again with a replay of its history.
    """
    cached_seconds: float = Field(default=20.0, gt=0)
    """Seconds for which a workflow's task waits for the process that has it in memory; another one replays it then.

    Replays take what a busy process lacks, and make more tasks late. A task that comes within 10 s of a process's
    death waits for it as long; later ones go to others at once."""
    max_local_steps: int = 100
    """Steps that a process makes within its workflow tasks at once: one that lasts longer goes on after 2 s."""
    max_model_calls: int = 500
    """Model calls that a process has open at once."""
    max_tool_calls: int = 200
    """Tool calls, verifications and the like that a process has open at once, on each of its queues."""
    environment_processes: int | None = Field(default=None, ge=1)
    """Most processes for one environment's code that a process keeps: each verifies one rollout at a time.

    By default four a processor, divided by the workers that a host has by default."""
    environment_memory_mb: int = Field(default=8_192, ge=64)
    """Resident memory of one such process and of those that it starts, in MiB: it is ended above that."""
    debug: bool = False
    """Whether environments' code runs in the worker's own process, without bounds: breakpoint() stops there."""
    model_call_timeout_seconds: float = Field(default=3_600.0, gt=0)
    """Seconds that one answer of a model server may take, however much of it comes."""
    model_first_token_timeout_seconds: float = Field(default=600.0, gt=0)
    """Seconds to the first token of an answer, and between two pieces of it."""
    rate_limits: dict[str, RateLimit] = {}
    """Limits of model servers' keys, by the key's environment variable: requests_per_minute, tokens_per_minute.

    All processes together keep to them. Without a key: the empty name."""
    model_answer_mb: int = 8
    """Largest answer of a model server, and largest event of a stream, in MiB."""
    show_commands: bool = True
    """Whether the Temporal UI shows the first 60 characters of commands, known secrets redacted."""
    write_ahead_tokens: int = 256
    """Tokens of a streamed turn after which they are journalled. A killed process loses those after them."""
    write_ahead_seconds: float = 2.0
    """Seconds after which the new tokens of a streamed turn are journalled."""
    workflow_pollers: int = Field(default=20, ge=2)
    """Most requests for workflow tasks that a process has open on each of its queues: three while idle."""
    activity_pollers: int = Field(default=2, ge=1)
    """Requests for activities that a process has open on each of its queues. A process that is frozen takes as many
    attempts of an activity, one after another."""
    model_keys: tuple[str, ...] = ("OPENAI_API_KEY",)
    """Environment variables with keys of model servers: processes that call none are started without them."""
    drain_seconds: float = 300.0
    """Seconds that a worker which was told to stop waits for calls in flight."""
    deployment: str = "clotho"
    """The name under which Temporal keeps this deployment's versions."""
    build_id: str | None = None
    """This code's version: rollouts and groups end on the one that they began with. Empty: no versioning.

    Workers get work once `clotho deploy` has made their version current."""


class MetricsSettings(FrozenModel):
    """The endpoint at which Prometheus reads the metrics of a worker process, or of the Atropos adapter."""

    port: int = Field(default=9464, ge=0, le=65_535)
    """First port for metrics; 0: no metrics. Each process takes the first free one of the 32 from it on."""
    host: str = "127.0.0.1"
    """The address to serve metrics at; 0.0.0.0: every address of this machine."""


class HealthSettings(FrozenModel):
    """`/healthz` and `/readyz` of a worker process."""

    port: int = Field(default=9564, ge=0, le=65_535)
    """First port for health checks; 0: none. Each process takes the first free one of the 32 from it on."""
    host: str = "127.0.0.1"
    """The address to answer health checks at; 0.0.0.0: every address of this machine."""


class TracingSettings(FrozenModel):
    """Traces of what worker processes do."""

    endpoint: str | None = None
    """URL for OpenTelemetry traces by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces. None: no traces."""
