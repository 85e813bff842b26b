"""Configuration of a machine's processes: YAML file < environment < arguments. The only reader of os.environ."""

import difflib
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from clotho.dataset_config import DatasetConfig
from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel, field_errors
from clotho.logs import LogFormat
from clotho.plugin_settings import Kind, settings_sections
from clotho.run_settings import RunSettings
from clotho.worker_settings import HealthSettings, MetricsSettings, TracingSettings, WorkerSettings

CONFIG_FILE = "clotho.yaml"
STATE_FOLDER = ".clotho"
SETTINGS_OF_COMMANDS = ("store", "temporal", "run", "dataset")
"""Sections that a run takes from the command that starts it, or by which workers are found."""
# every command asks first: a server on this machine answers or refuses at once
SERVICES_SECONDS = 0.5
PREFIX, DELIMITER = "CLOTHO_", "__"
TOKEN_VARIABLE = "CLOTHO_TOKEN"
"""The token of HTTP servers and of their clients. It is no setting: those are written in files and shown."""
KEYS_PIPE = "CLOTHO_KEYS_PIPE"
"""Holds the number of the descriptor from which a worker reads the keys of model servers."""
VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")


class TemporalSettings(FrozenModel):
    """The address of the Temporal server. API keys and certificates come from Temporal's own variables."""

    address: str | None = None
    """Temporal's address. None: TEMPORAL_ADDRESS or a Temporal profile, else `default_address`."""
    default_address: str = "127.0.0.1:7233"
    """Used where no other address is given. A running `clotho dev` for the same store sets it."""
    namespace: str | None = None
    """Temporal's namespace. None: TEMPORAL_NAMESPACE or a Temporal profile, else `default`."""
    ui: str = "http://127.0.0.1:8233"
    """Address of Temporal's web page, for the links that are shown."""


class DevelopmentServices(FrozenModel):
    """Addresses of a running `clotho dev`, kept beside the store."""

    temporal: str
    ui: str
    model: str
    """Base URL of the embedded model."""

    def answer(self) -> bool:
        """Whether they are still up: a killed `dev` leaves its file behind."""
        host, _, port = self.temporal.rpartition(":")
        try:
            socket.create_connection((host, int(port)), SERVICES_SECONDS).close()
        except OSError:
            return False
        return True


class SandboxSettings(FrozenModel):
    """Folder, budget and leases of this host's sandboxes."""

    backend: str = "local"
    """The backend of this host's sandboxes: `local`, `ssh`, or `module:Class` of another.

    Workers refuse runs that ask for another one, but for those of plugins that they have beside it, such as
    `docker`.
    """
    root: Path = Field(default_factory=lambda: Path(f"/tmp/clotho-{os.getuid()}"))
    """Folder of sandboxes and their control files. Other users may pass through it but not change it."""
    disk_budget_mb: int | None = None
    """MiB that the disks of all sandboxes of this host may take together; one takes its `disk_mb` twice.

    None: no bound, so that sandboxes may be promised more than there is.
    """
    lease_seconds: float = 600.0
    """Seconds that a sandbox outlives the last renewal by its host's workers."""

    def folder_of(self, store: str) -> Path:
        """Folder of one store's sandboxes: leases are named after rollouts, and two stores may share the names."""
        # hashed: a store's name may be a long path, or a URL
        return self.root / hashlib.sha256(store.encode()).hexdigest()[:16]


class Settings(BaseSettings):
    """One tree for every process; unknown keys are errors.

    Environment variables are `CLOTHO_` and the path, joined by two underscores: CLOTHO_WORKER__DRAIN_SECONDS.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=DELIMITER, extra="forbid", frozen=True, yaml_file=CONFIG_FILE
    )

    store: str = f"{STATE_FOLDER}/store"
    """Location of the journal: a folder, or s3://bucket/prefix."""
    host: str | None = None
    """This machine's persistent name in task queues; None: made once and kept in the cache folder."""
    log_format: LogFormat = "text"
    """Format of workers' and servers' log lines: text or JSON."""
    fail: str = ""
    """Failpoints to arm: faults on purpose, for tests."""
    fail_folder: Path = Path(f"{STATE_FOLDER}/fail")
    """Folder through which armed failpoints and the test that armed them talk."""
    temporal: TemporalSettings = TemporalSettings()
    worker: WorkerSettings = WorkerSettings()
    metrics: MetricsSettings = MetricsSettings()
    health: HealthSettings = HealthSettings()
    tracing: TracingSettings = TracingSettings()
    sandbox: SandboxSettings = SandboxSettings()
    run: RunSettings = RunSettings()
    """Defaults of runs that are started here; flags override them."""
    dataset: DatasetConfig | None = None
    """The dataset whose rows are the items of such runs, by its fields; or its source alone."""
    plugins: FrozenModel = FrozenModel()
    """Settings of plugins, by the plugin's name."""

    def of(self, kind: type[Kind]) -> Kind:
        """A plugin's settings, by their class."""
        section: Kind | None = getattr(self.plugins, kind.plugin, None)
        return kind() if section is None else section

    @property
    def folder(self) -> Path:
        """Folder of logs, exports and development servers' files: beside the store, or named after its location."""
        if "://" in self.store:
            return Path(STATE_FOLDER) / re.sub(r"[^A-Za-z0-9.]+", "-", self.store).strip("-")
        return Path(self.store).parent

    @property
    def services_file(self) -> Path:
        """File with the addresses of a running `clotho dev`."""
        return self.folder / "services.json"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # the first source wins
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


@cache
def settings_class() -> type[Settings]:
    """Settings with a section for each installed plugin that has some."""
    sections = settings_sections()
    return create_model("InstalledSettings", __base__=Settings, plugins=(sections, sections()))


def load_settings(store: str | None = None, temporal: str | None = None) -> Settings:
    """The settings of this process, with the store and Temporal's address that its arguments give.

    Raises InvalidInput that names the key, variable or line at fault.
    """
    _refuse_unknown_variables()
    arguments: dict[str, Any] = {"store": store} if store is not None else {}
    arguments |= {"temporal": {"address": temporal}} if temporal else {}
    try:
        return _with_services(settings_class()(**arguments))
    except ValidationError as error:
        raise InvalidInput(f"configuration: {field_errors(error, CONFIG_FILE)}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{CONFIG_FILE} is not valid YAML: {' '.join(str(error).split())}") from error
    except SettingsError as error:
        raise InvalidInput(f"configuration: {error}") from error
    # last, since the errors above but YAML's are ValueErrors: here the file holds no mapping
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{CONFIG_FILE} must hold names and values, one `name: value` a line") from error


def development_services(settings: Settings) -> DevelopmentServices | None:
    """The `clotho dev` that serves the store of `settings`, if one runs."""
    try:
        services = DevelopmentServices.model_validate_json(settings.services_file.read_bytes())
    # no file is the usual case: no `clotho dev` has run for this store
    except (OSError, ValidationError):
        return None
    return services if services.answer() else None


class SettingsFile(FrozenModel):
    """Workers' settings in a clotho.yaml, as a process read them: as digests, since others read the store, too."""

    path: str
    digests: dict[str, str] = {}
    """By the setting's name, such as worker.drain_seconds."""

    def differing(self, other: "SettingsFile") -> list[str]:
        """The settings that aren't alike in both."""
        names = self.digests.keys() | other.digests.keys()
        return sorted(name for name in names if self.digests.get(name) != other.digests.get(name))


def read_settings_file() -> SettingsFile:
    """Read the clotho.yaml of this folder; the result has no settings where there is none."""
    path = Path(CONFIG_FILE).absolute()
    read = yaml.safe_load(path.read_text()) if path.is_file() else None
    sections = read if isinstance(read, dict) else {}
    of_workers = {name: value for name, value in sections.items() if name not in SETTINGS_OF_COMMANDS}
    return SettingsFile(path=str(path), digests=dict(_digests(of_workers)))


def _digests(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _digests(value, f"{prefix}{name}.")
        else:
            text = json.dumps(value, sort_keys=True, default=str)
            yield f"{prefix}{name}", hashlib.sha256(text.encode()).hexdigest()[:12]


def _with_services(settings: Settings) -> Settings:
    """The settings, with the addresses of the `clotho dev` that serves their store."""
    if (services := development_services(settings)) is None:
        return settings
    found = {"default_address": services.temporal, "ui": services.ui}
    # only what was given outranks the services' addresses, and no default
    given = settings.temporal.model_dump(exclude_unset=True)
    return settings.model_copy(update={"temporal": settings.temporal.model_copy(update={**found, **given})})


def _refuse_unknown_variables() -> None:
    """Raise InvalidInput for a variable of Clotho's that is no setting: a mistyped one would be ignored."""
    known = [TOKEN_VARIABLE, *(PREFIX + name.upper() for name in _names(settings_class()))]
    for variable in sorted(os.environ):
        if variable.upper().startswith(PREFIX) and variable.upper() not in known:
            near = difflib.get_close_matches(variable.upper(), known, cutoff=0.5)
            raise InvalidInput(
                f"environment variable {variable} is no setting; near it are: {', '.join(near) or 'none'}"
            )


def _names(settings: type[BaseModel]) -> Iterator[str]:
    for name, setting in settings.model_fields.items():
        yield name
        if isinstance(setting.annotation, type) and issubclass(setting.annotation, BaseModel):
            yield from (f"{name}{DELIMITER}{inner}" for inner in _names(setting.annotation))


def checked_variable_name(name: str) -> str:
    """`name`, if it may name an environment variable.

    Raises InvalidInput without repeating what was given: it may be the key itself.
    """
    if VARIABLE_NAME.fullmatch(name) is None:
        raise InvalidInput(
            "the key of a model server is given by the name of an environment variable, "
            "of A-Z, 0-9 and _, such as OPENAI_API_KEY; what was given is no such name"
        )
    return name


def secret(variable: str, what: str = "the key of the model server") -> str:
    """The secret in environment variable `variable`, without white space around it.

    Raises InvalidInput if it isn't set, or holds what no header can.
    """
    checked_variable_name(variable)
    if (value := _received_keys.get(variable, os.environ.get(variable))) is None:
        raise InvalidInput(f"environment variable {variable} is not set; it must hold {what}")
    # stripped: a key out of a file ends in a newline
    if not ((stripped := value.strip()).isascii() and stripped.isprintable()):
        raise InvalidInput(f"environment variable {variable} holds characters that no key has")
    return stripped


def shared_token() -> str | None:
    """The token in CLOTHO_TOKEN; None where it isn't set. Raises InvalidInput for one that is empty."""
    if TOKEN_VARIABLE not in os.environ:
        return None
    return secret_token(TOKEN_VARIABLE, "the token of Clotho's HTTP servers")


def secret_token(variable: str, what: str) -> str:
    """The token in an environment variable. Raises InvalidInput for one that is empty or not set."""
    if not (token := secret(variable, what)):
        raise InvalidInput(f"environment variable {variable} is empty; it must hold {what}")
    return token


def variable(name: str) -> str | None:
    """The value of an environment variable that a run names; None where it isn't set."""
    return _received_keys.get(name, os.environ.get(name))


def is_in_environment(names: Iterable[str]) -> bool:
    """Whether this process's environment has any of these variables."""
    return any(name in os.environ for name in names)


_received_keys: dict[str, str] = {}
"""The keys of model servers in this process that were in no environment of its own."""


def receive_keys() -> None:
    """Read the keys of model servers from the parent process's pipe, if it has left one."""
    # taken out: it is no setting, and in a child of this process the number is another descriptor
    if (descriptor := os.environ.pop(KEYS_PIPE, None)) is not None:
        with os.fdopen(int(descriptor)) as pipe:
            _received_keys.update(json.load(pipe))


def environment_without(names: Iterable[str]) -> dict[str, str]:
    """This process's environment, without the variables of these names."""
    return {name: value for name, value in os.environ.items() if name not in names}


AUTHORS_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "LANG", "LANGUAGE", "TMPDIR", "PYTHONPATH"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "HF_HOME", "HF_HUB_OFFLINE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CUDA_VISIBLE_DEVICES"),
    *("OMP_NUM_THREADS", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
)
"""Environment variables that hold no secret, and that programs need to find their files."""


def environment_for_authors(names: Iterable[str]) -> dict[str, str]:
    """The environment of a process for an author's code: variables without secrets, and those of `names`."""
    wanted = {*AUTHORS_VARIABLES, *names}
    return {name: value for name, value in os.environ.items() if name in wanted or name.startswith("LC_")}


def engine_socket() -> str | None:
    """The address of the first usual socket of Docker or podman that this user may use, if there is one."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    # a user's own engine before the machine's, which is root's
    usual = (
        runtime / "podman" / "podman.sock",
        runtime / "docker.sock",
        Path.home() / ".docker" / "run" / "docker.sock",
        Path("/var/run/docker.sock"),
        Path("/run/podman/podman.sock"),
    )
    # a socket that is there may be another user's: Docker's is root's and its group's
    return next((f"unix://{path}" for path in usual if os.access(path, os.R_OK | os.W_OK)), None)


def cache_folder() -> Path:
    """Clotho's cache folder of this user, which checkouts share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clotho"


def browsers_of_playwright() -> Path:
    """The folder in which Playwright keeps the browsers that it has installed."""
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    return Path(named) if named else cache_folder().parent / "ms-playwright"
