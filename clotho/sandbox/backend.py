"""The interface of sandbox backends: leases on sandboxes, and keyed jobs and files inside them.

A *lease* names one sandbox of one rollout. A *job* is a command that the sandbox starts at most once
under its key and that outlives the worker that asked for it. An *instance* is one running supervisor over the
sandbox's files: the agent has one, verification gets another over the same workspace.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import ValidationInfo, field_validator, model_validator

from clotho.errors import InvalidInput, IsolationUnavailable
from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.sandbox.checkpoints import Checkpoint, Manifest, NotTaken, Restore
from clotho.sandbox.config import AnyBackendConfig, BackendConfig, LocalConfig
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.jobs import MAX_OUTPUT_BYTES as MAX_OUTPUT_BYTES
from clotho.sandbox.jobs import Job as Job
from clotho.sandbox.jobs import JobStatus as JobStatus
from clotho.sandbox.jobs import SessionInfo as SessionInfo
from clotho.sandbox.places import AGENT_HOME as AGENT_HOME
from clotho.sandbox.places import WORKSPACE as WORKSPACE
from clotho.sandbox.places import check_mounts, check_places
from clotho.sandbox.states import JobState as JobState
from clotho.sandbox.supervised.layout import Layout
from clotho.sandbox.verification import USUAL, VerifierSetup

MAX_CHECKPOINT_BYTES = 1 << 30
MAX_CHECKPOINT_SECONDS = 60.0
"""Bounds of a checkpoint: on an archive before compression, and on the time for which commands stand still."""


class SandboxSpec(FrozenModel):
    """A run's requirements of its sandboxes."""

    backend: AnyBackendConfig = LocalConfig()
    """The backend that makes them: its name, `module:Class`, or its configuration (`docs/sandbox-backends.md`)."""
    memory_mb: int = 5120
    """Memory of a sandbox, in MiB."""
    disk_mb: int = 51_200
    """Disk of a sandbox, in MiB."""
    max_processes: int = 256
    """Processes of a sandbox."""
    limits: Literal["required", "best_effort"] = "best_effort"
    """Whether memory, process and disk bounds that this host can't enforce are an error."""
    lease_seconds: int = 600
    """Seconds that a sandbox outlives the last renewal by its host's workers."""
    unsafe_local: bool = False
    """Run without isolation where it can't be proved. Commands then own the worker's machine."""
    expose_usr_local: bool = False
    """Whether sandboxes see the host's /usr/local, read-only."""
    writable_roots: tuple[str, ...] = ()
    """Further folders that commands may write to, as paths: checkpointed as the workspace is."""
    variables: dict[str, str] = {}
    """Further environment variables of commands."""
    aliases: dict[str, str] = {}
    """Further paths of the workspace (/work), the home (/home/agent), /tmp and writable roots."""
    mounts: Annotated[dict[str, str], WHERE_SET] = {}
    """Folders of the workers' hosts that sandboxes see, read-only: path that commands see -> folder of the host."""

    @field_validator("mounts")
    @classmethod
    def _mounts(cls, mounts: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        check_mounts(mounts, (*info.data.get("writable_roots", ()), *info.data.get("aliases", {})))
        return mounts

    @model_validator(mode="after")
    def _places(self) -> "SandboxSpec":
        check_places(self.writable_roots, self.aliases)
        return self

    def require_mounts_here(self) -> None:
        """Raises InvalidInput for a folder to mount that this host lacks."""
        for folder in self.mounts.values():
            if not Path(folder).is_dir():
                raise InvalidInput(f"mounts: there is no folder {folder} on this host")

    def require_no_mounts(self, kind: str) -> None:
        """Raises InvalidInput if the spec has mounts: sandboxes of `kind` see no folder of the worker's host."""
        if self.mounts:
            raise InvalidInput(
                f"mounts: sandboxes of {kind} see no folder of the worker's host; have {next(iter(self.mounts))} "
                "in their image or on their own machine instead"
            )

    def require(self, report: IsolationReport) -> None:
        """Raise IsolationUnavailable for a host that can't isolate or bound a sandbox as asked."""
        if self.limits == "required" and report.unlimited:
            raise IsolationUnavailable(
                f"this host can't bound {' and '.join(report.unlimited)} (limits: required)"
            )
        if not report.isolated and not self.unsafe_local:
            raise IsolationUnavailable(f"it can't be proved that a sandbox here {'; '.join(report.missing)}")


class Labels(FrozenModel):
    """The owner of a sandbox: the rollout's workflow that used it last."""

    store: str
    """Identity of the store that holds the rollout's journal."""
    cluster: str
    namespace: str
    rollout: str

    def same_namespace(self, other: "Labels | None") -> bool:
        """Whether `other` is of the same namespace of the same cluster."""
        return other is not None and (self.cluster, self.namespace) == (other.cluster, other.namespace)


class LeaseRecord(FrozenModel):
    """A sandbox that a backend holds."""

    lease: str
    labels: Labels | None
    expires: float
    """Unix seconds at which it ends by itself unless it is renewed."""


class FileContent(FrozenModel):
    """A regular file, or why there is none."""

    error: (
        Literal[
            "not_found",
            "is_directory",
            "not_regular",
            "too_large",
            "permission_denied",
            "name_too_long",
            "inaccessible",
            "outside",
        ]
        | None
    )
    """`outside`: in a verifier, the agent's path leads out of the agent's folders."""
    size: int = 0
    content: bytes = b""


class SandboxInstance(Protocol):
    """One supervisor, reached from the host. Every method may raise SandboxLost or SandboxUnavailable."""

    @property
    def incarnation(self) -> str: ...

    @property
    def workspace(self) -> str:
        """Directory where commands start: WORKSPACE, or a folder of the host where there is no isolation.

        `workdir` and the file verbs take WORKSPACE and AGENT_HOME in either case.
        """

    @property
    def home(self) -> str:
        """The agent's home, which `~` stands for in the file verbs."""

    @property
    def layout(self) -> Layout:
        """All of its folders, and the paths that the file verbs take for them."""

    @property
    def hidden_files(self) -> str | None:
        """The folder that a verifier sees its hidden files in; None in the agent's instance."""

    def is_agents(self, path: str) -> bool:
        """Whether `path`, as the file verbs take it, is in a folder where the agent can have put anything."""

    async def raise_fence(self, number: int) -> None:
        """Begin to work under a fence: requests of instances under a lower one have no effect from now on.

        Requests are starts, inputs, kills, and reads and writes of files; a caller there may get TakenOver. Without
        this call an instance has number 0.
        """

    async def start(self, job: Job) -> None:
        """Start `job`, or attach to it if its key is known. Raises CommandConflict for another command."""

    async def wait(self, key: str, timeout: float) -> JobStatus:
        """Return when the job has ended, or its status after `timeout` seconds."""

    async def wait_output(self, key: str, size: int, timeout: float) -> JobStatus:
        """Return when the job has written more than `size` bytes or has ended, or its status after `timeout`."""

    async def output(self, key: str, offset: int = 0, limit: int = MAX_OUTPUT_BYTES) -> bytes:
        """Standard output and error of a job, interleaved as written: at most `limit` bytes from byte `offset`.

        For a job that has ended, it stops at the size that the job's status tells.
        """

    async def kill(self, key: str) -> None:
        """End the job's whole process tree; a job not yet started never will be."""

    async def send_input(self, key: str, data: bytes, request: str | None = None) -> None:
        """Queue `data` for the job's standard input; at most once for a `request` (32 hexadecimal digits)."""

    async def close_input(self, key: str) -> None: ...

    async def sessions(self) -> Sequence[SessionInfo]: ...

    async def read_file(self, path: str, max_bytes: int, after: str | None = None) -> FileContent:
        """Read as the sandbox's user. Relative paths start in the directory that job `after` left; `~` is HOME."""

    async def write_file(
        self, path: str, content: bytes, after: str | None = None, key: str | None = None
    ) -> str:
        """Write by temporary file and rename, making parents; returns the resolved path.

        A link is written through. With a `key` (32 hexadecimal digits) it happens at most once, and `applied`
        tells of it. Raises FileRefused for what isn't a regular file or may not be written.
        """

    async def renew(self, seconds: float) -> None:
        """Keep the sandbox alive for `seconds` from now."""

    async def checkpoint(
        self,
        to: Path,
        *,
        after: str | None = None,
        previous: Checkpoint | None = None,
        max_bytes: int = MAX_CHECKPOINT_BYTES,
        timeout: float = MAX_CHECKPOINT_SECONDS,
    ) -> Checkpoint | NotTaken:
        """Archive workspace, HOME and /tmp, all commands stopped meanwhile, with the shell state job `after` left.

        The blob is written to file `to`. If nothing has changed since `previous`, no blob is written: both share
        that of `previous`. `max_bytes` bounds the archive before compression. Raises SandboxUnavailable for an
        archive that failed; the sandbox goes on in any case.
        """

    async def manifest(self) -> Manifest | None:
        """The files of the workspace, all commands stopped meanwhile; None where they can't be listed in time."""

    async def applied(self) -> frozenset[str]:
        """The keys of jobs that were started and of files that were written."""


class SandboxBackend(Protocol):
    """Creates and finds sandboxes by lease; every method is idempotent."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the configurations for which it makes sandboxes."""

    async def system(self, lease: str) -> str:
        """A fingerprint of the programs that the sandbox of `lease` sees beside its own files."""

    async def evidence(self, lease: str) -> frozenset[Evidence]:
        """Ways for commands to end the sandbox of `lease` that this backend tells from its host's doing.

        With all of them, a loss whose SandboxLost names no resource is taken for the host's.
        """

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> SandboxInstance:
        """Make the sandbox of `lease` from `restore`, unless one lives that was made from the same checkpoint.

        A sandbox that is only partly restored is never visible. Raises JournalCorrupt for a damaged blob, and
        IsolationUnavailable where commands would see a `private` path of this host.
        """

    async def attach(self, lease: str, incarnation: str, labels: Labels | None = None) -> SandboxInstance:
        """The sandbox of `lease`, with `labels` from now on; raises SandboxLost if that incarnation is gone."""

    async def open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None = None,
        setup: VerifierSetup = USUAL,
    ) -> SandboxInstance:
        """End the agent's processes, then start a fresh instance over the same workspace, home and /tmp.

        An epoch has one instance. If it exists already, `hidden_files` and `setup` are not used. With
        `setup.only_reads` the result may be the agent's instance, as long as the epoch has none of its own.
        """

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> SandboxInstance:
        """The agent's own instance for verification, its processes alive. There are no hidden files in it."""

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        """End the sandbox and delete its files; with `labels`, only where it carries their namespace."""

    async def renew(self, lease: str, seconds: float) -> None:
        """Keep the sandbox alive for `seconds` from now; raises SandboxLost if it is gone."""

    async def leases(self) -> Sequence[LeaseRecord]:
        """The sandboxes that this backend holds on this host."""

    async def reap(self) -> Sequence[str]:
        """Destroy the sandboxes past their lease and a grace; returns their names."""

    async def expired(self) -> Sequence[str]:
        """The names of the sandboxes that `reap` would destroy."""

    async def probe(self) -> IsolationReport:
        """The isolation and bounds that this backend enforces on this host."""


class BesideBackend(SandboxBackend, Protocol):
    """A backend that workers have beside the one that their settings name."""

    def makes(self, config: BackendConfig) -> bool:
        """Whether it makes the sandboxes of this configuration on this host."""

    def holds(self, lease: str) -> bool:
        """Whether there is, or was a moment ago, a sandbox of this lease here."""

    async def close(self) -> None:
        """Give up sandboxes that this process keeps ready, and its connections."""


def require_backend(spec: SandboxSpec, backend: SandboxBackend) -> None:
    """Raises InvalidInput where `backend` isn't the one that `spec` asks for."""
    if spec.backend.name not in backend.names:
        raise InvalidInput(
            f"the run asks for sandboxes of {spec.backend.name}, this host makes those of "
            f"{' and '.join(backend.names)}: set `sandbox` of the run and `sandbox.backend` of its workers alike"
        )
