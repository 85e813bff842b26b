"""The view of an instance elsewhere: where its commands find things, and how its supervisor begins."""

from dataclasses import dataclass

from clotho.plugins.containers.relay.machine import Start
from clotho.plugins.containers.relay.records import Instance, RelayRecord
from clotho.sandbox.places import AGENT_HOME, TMP, USUAL_VARIABLES, WORKSPACE
from clotho.sandbox.supervised.layout import Layout, resolve_alias
from clotho.sandbox.supervised.seccomp import program as seccomp_program
from clotho.sandbox.supervised.verifying import expanded, verifying_variables
from clotho.sandbox.supervisor import supervisor_path
from clotho.sandbox.verification import VerifierSetup

PROGRAM, FILTER, CONTROL = "/.clotho/supervisor", "/.clotho/filter", "/.control"
RELAY = (PROGRAM, "relay")


@dataclass(frozen=True)
class RelayView:
    """`setup` is set for verification, in an instance of its own or in the agent's."""

    record: RelayRecord
    instance: Instance
    setup: VerifierSetup | None = None

    @property
    def folders(self) -> dict[str, int]:
        """The folders that commands write to, with their modes."""
        own = {self.record.workdir: 0o755, self.record.home: 0o755, TMP: 0o1777}
        folders = {**own, **dict.fromkeys(self.record.spec.writable_roots, 0o755)}
        return {path: mode for path, mode in folders.items() if path != "/"}

    @property
    def links(self) -> dict[str, str]:
        """Further names of those folders: the path of each, and what it leads to."""
        return {path: self._resolved(meant) for path, meant in self.record.spec.aliases.items()}

    @property
    def _usual(self) -> dict[str, str]:
        """The usual paths of folders that are elsewhere here."""
        places = {WORKSPACE: self.record.workdir, AGENT_HOME: self.record.home}
        return {usual: path for usual, path in places.items() if usual != path}

    def _resolved(self, path: str) -> str:
        return resolve_alias(path, self._usual)

    @property
    def hidden_files(self) -> str | None:
        return None if self.instance.private is None else f"{self.instance.private}/hidden"

    def layout(self) -> Layout:
        roots = {f"root{number}": path for number, path in enumerate(self.record.spec.writable_roots)}
        return Layout(
            self.record.workdir,
            self.record.home,
            TMP,
            False,
            {**self._usual, **self.links},
            roots,
            ("/",) if self.record.workdir == "/" else (*self.folders, *self.links),
            self.setup is not None or self.instance.private is not None,
            self.hidden_files,
        )

    def environment(self) -> dict[str, str]:
        record = self.record
        own = {**USUAL_VARIABLES, **record.base.environment, "HOME": record.home}
        return verifying_variables({**own, **record.spec.variables}, self.setup, self.instance.private)

    def directory(self) -> str:
        """The directory of its first command, unless the agent's shell has left another one."""
        assert self.setup is not None
        return self._resolved(expanded(self.setup.directory, self.environment()))

    @property
    def _bounds(self) -> tuple[str, ...]:
        spec = self.record.spec
        return (self.record.user, str(round(spec.lease_seconds)), "0", str(spec.disk_mb << 20))

    @property
    def files(self) -> dict[str, bytes]:
        machine = self.record.base.architecture
        return {PROGRAM: supervisor_path(machine).read_bytes(), FILTER: seccomp_program(machine)}

    def start(self) -> Start:
        """The supervisor as a machine's first process."""
        command = (PROGRAM, "host", CONTROL, *self._bounds)
        return Start(command, self.record.workdir, self.environment(), self.files)

    def begin(self) -> tuple[str, ...]:
        """The supervisor beside other processes of a machine."""
        variables = (f"{name}={value}" for name, value in self.environment().items())
        return (PROGRAM, "begin", CONTROL, *self._bounds, self.record.workdir, *variables)
