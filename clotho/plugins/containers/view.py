"""The view of an instance in a container: the settings that its engine is asked for, and its layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.folders import ContainerFolder, ContainerRecord, own, variables
from clotho.plugins.containers.holdings import LABEL, LEASE_LABEL
from clotho.sandbox.backend import AGENT_HOME, WORKSPACE, SandboxSpec
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.supervised import placed_files
from clotho.sandbox.supervised.folders import identity_of
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.layout import Layout, resolve_alias
from clotho.sandbox.supervised.verifying import expanded, verifying_variables
from clotho.sandbox.verification import VerifierSetup

PROGRAM, CONTROL = "/.supervisor", "/.control"
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""Left to commands that run as root."""
SUPERVISOR_CAPABILITIES = ("KILL", "SETPCAP", "SYS_ADMIN")
"""The supervisor also has these, and drops them before any command."""
PROCESS_HEADROOM = 64
"""Left for the supervisor: commands meet their own, smaller limit before it can no longer start anything."""
SHARED_MEMORY = "64m"
VERIFIER_TMP = "rw,exec,nosuid,nodev,size=512m,mode=1777"


@dataclass(frozen=True)
class ContainerView:
    """`private` and `setup` are set for a verifier's instance, `setup` alone for verification in the agent's."""

    folder: ContainerFolder
    record: ContainerRecord
    private: Path | None = None
    setup: VerifierSetup | None = None
    mounted: bool = True
    """Whether it has the sandbox's folders in place of the image's own."""

    @property
    def mounts(self) -> dict[str, Path]:
        """Paths that commands see and may write to, and what they are on the host."""
        if not self.mounted:
            return {}
        writable = self.folder.writable(self.record)
        aliases = {path: self._resolve_alias(meant) for path, meant in self.record.spec.aliases.items()}
        return {
            **writable,
            **{path: self.folder.place_of(self.record, meant) for path, meant in aliases.items()},
        }

    @property
    def _aliases(self) -> dict[str, str]:
        """The usual paths of folders that are elsewhere in this image."""
        places = {WORKSPACE: self.record.workdir, AGENT_HOME: self.record.config.home}
        return {usual: path for usual, path in places.items() if usual != path}

    def _resolve_alias(self, path: str) -> str:
        return resolve_alias(path, self._aliases)

    def layout(self, verifying: bool = False) -> Layout:
        """`verifying` is set also for the agent's own instance, while verification runs in it."""
        roots = {f"root{number}": path for number, path in enumerate(self.record.roots)}
        return Layout(
            self.record.workdir,
            self.record.config.home,
            "/tmp",
            # whether checkpoints have all that commands can change
            self.record.config.read_only or self.record.config.checkpoint == "commit",
            self._aliases,
            roots,
            ("/",) if self.record.workdir == "/" else tuple(self.mounts),
            verifying or self.private is not None,
            self.hidden_files,
        )

    @property
    def hidden_files(self) -> str | None:
        return None if self.private is None else f"/.{self.private.name}/hidden"

    def environment(self) -> dict[str, str]:
        """The variables of every command of this instance."""
        private = None if self.private is None else f"/.{self.private.name}"
        return verifying_variables(variables(self.record), self.setup, private)

    def directory(self) -> str:
        """The directory of its first command, unless the agent's shell has left another one."""
        assert self.setup is not None
        return self._resolve_alias(expanded(self.setup.directory, self.environment()))

    def settings(self, control: Path, program: Path) -> dict[str, Any]:
        """The engine's settings of the container whose supervisor serves `control`."""
        spec, config = self.record.spec, self.record.config
        bounds = (round(spec.lease_seconds), 0, spec.disk_mb << 20)
        tmpfs = dict(config.tmpfs)
        mounts = [f"{path}:{seen}:rw" for seen, path in self.mounts.items()]
        mounts += [f"{folder}:{seen}:ro" for seen, folder in spec.mounts.items()]
        mounts += [f"{control}:{CONTROL}:rw", f"{program}:{PROGRAM}:ro"]
        if self.private is not None:
            mounts.append(f"{self.private / 'hidden'}:/.{self.private.name}/hidden:ro")
            mounts += [
                f"{each.source}:{each.seen}:{'ro' if each.read_only else 'rw'}"
                for each in placed_files.mounts(
                    self.private,
                    self.folder.writable(self.record),
                    lambda path: own(path, self.record.user),
                )
            ]
            # the verifier's own TMPDIR: the agent could have prepared what is in /tmp
            tmpfs[f"/.{self.private.name}/tmp"] = VERIFIER_TMP
        return {
            **engine_settings(config, spec),
            "entrypoint": [PROGRAM],
            "command": ["contain", CONTROL, str(self.record.user), *map(str, bounds)],
            "environment": self.environment(),
            "working_dir": self.record.workdir,
            "labels": self._labels(),
            "volumes": mounts,
            "tmpfs": tmpfs,
            "read_only": config.read_only,
        }

    @property
    def ownership(self) -> Mapping[str, str]:
        """Labels of a container or image: the backend that it belongs to, and the length of its first lease."""
        return {
            LABEL: identity_of(self.folder.root),
            LEASE_LABEL: str(self.record.spec.lease_seconds),
        }

    def _labels(self) -> Mapping[str, str]:
        labels = self.record.labels
        owner = {} if labels is None else labels.model_dump()
        return {
            **self.ownership,
            "clotho.root": str(self.folder.root),
            "clotho.lease": self.record.lease,
            **{f"clotho.{name}": value for name, value in owner.items()},
        }


def engine_settings(config: DockerConfig, spec: SandboxSpec) -> dict[str, Any]:
    """A container's bounds and rights, the same for every engine."""
    gpus = {"count": -1 if config.gpus == "all" else config.gpus, "capabilities": [["gpu"]]}
    return {
        # the supervisor's, which gives commands the user of the record
        "user": "0:0",
        "hostname": "sandbox",
        "network_mode": "none" if config.network == "none" else None,
        "mem_limit": spec.memory_mb << 20,
        # of memory and swap together: equal limits leave no swap
        "memswap_limit": spec.memory_mb << 20,
        "pids_limit": spec.max_processes + PROCESS_HEADROOM,
        "nano_cpus": None if config.cpus is None else round(config.cpus * 1e9),
        "device_requests": [gpus] if config.gpus else [],  # Engine.start refuses an engine that ignores them
        "shm_size": SHARED_MEMORY,
        "cap_drop": ["ALL"],
        "cap_add": [*CAPABILITIES, *SUPERVISOR_CAPABILITIES],
        "security_opt": ["no-new-privileges"],
        # the kernel drops a SIGTERM to the supervisor, which is PID 1: an engine's stop would wait for nothing
        "stop_signal": "SIGKILL",
        # an image's own would run in the sandbox, beside the agent's commands
        "healthcheck": {"test": ["NONE"]},
        "platform": config.platform,
    }


def instance_of(view: ContainerView, control: Control, incarnation: str) -> SupervisedSandbox:
    return SupervisedSandbox(control, incarnation, view.layout(), bounds_of(view))


def bounds_of(view: ContainerView) -> Bounds:
    return Bounds(view.record.groups, view.record.spec.max_processes, None)
