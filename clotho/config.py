"""Configuration of a machine's processes: YAML file < environment < arguments. The only reader of os.environ."""

import difflib
import hashlib
import os
import platform
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from clotho.errors import InvalidInput
from clotho.logs import LogFormat

CONFIG_FILE = "clotho.yaml"
STATE_FOLDER = ".clotho"
PREFIX, DELIMITER = "CLOTHO_", "__"


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TemporalSettings(Section):
    """Where the Temporal server is. API keys and certificates come from Temporal's own variables."""

    address: str | None = None
    """None: TEMPORAL_ADDRESS or a Temporal profile, else 127.0.0.1:7233."""
    namespace: str | None = None
    ui: str = "http://127.0.0.1:8233"


class WorkerSettings(Section):
    """Sizes of a worker process."""

    max_cached_workflows: int = 2_000
    max_workflow_tasks: int = 100
    max_model_calls: int = 500
    max_tool_calls: int = 200
    model_call_timeout: float = 600.0
    write_ahead_tokens: int = 256
    """Of a streamed turn, after which they are journalled: what a killed process had not is sampled again."""
    write_ahead_seconds: float = 2.0
    """After which a streamed turn's tokens are journalled, if there are any."""
    drain_seconds: float = 300.0
    """How long a worker that was told to stop waits for calls in flight."""
    deployment: str = "clotho"
    """The name under which Temporal keeps this deployment's versions."""
    build_id: str | None = None
    """This code's version: rollouts and groups end on the one that they began with. None: no versioning."""


class SandboxSettings(Section):
    """Where this host keeps sandboxes."""

    root: Path = Path("/tmp/clotho")
    """Sandboxes and their control files. Every sandbox's user must be able to pass through it."""
    lease_seconds: float = 600.0
    """How long a sandbox outlives the last sign of its host's workers."""

    def folder_of(self, store: str) -> Path:
        """Leases are named by a store's rollouts: the sandboxes of two stores are kept apart."""
        return self.root / hashlib.sha256(store.encode()).hexdigest()[:16]


class S3Settings(Section):
    """How a store in S3 is reached. Credentials come from AWS's own variables, files and roles."""

    endpoint: str | None = None
    """URL of a server that isn't AWS's; None: what AWS's own configuration says."""
    region: str | None = None
    """None: what AWS's own configuration says, else us-east-1."""
    timeout: float = 15.0
    """Seconds without a byte after which an attempt counts as lost."""


class Settings(BaseSettings):
    """One tree for every process; unknown keys are errors.

    Environment variables are `CLOTHO_` and the path, joined by two underscores: CLOTHO_WORKER__DRAIN_SECONDS.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=DELIMITER, extra="forbid", frozen=True, yaml_file=CONFIG_FILE
    )

    store: str = f"{STATE_FOLDER}/store"
    """Where the journal is: a folder, or s3://bucket/prefix."""
    host: str | None = None
    """This machine's persistent name in task queues; None: made once and kept in the cache folder."""
    log_format: LogFormat = "text"
    fail: str = ""
    """Fail points to arm: faults on purpose, as `clotho.failpoints` describes them."""
    fail_folder: Path = Path(f"{STATE_FOLDER}/fail")
    """Where fail points and who armed them find each other."""
    s3: S3Settings = S3Settings()
    temporal: TemporalSettings = TemporalSettings()
    worker: WorkerSettings = WorkerSettings()
    sandbox: SandboxSettings = SandboxSettings()

    @property
    def folder(self) -> Path:
        """Where logs, exports and development servers' files go: beside the store, or named after its location."""
        if "://" in self.store:
            return Path(STATE_FOLDER) / re.sub(r"[^A-Za-z0-9.]+", "-", self.store).strip("-")
        return Path(self.store).parent

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


def load_settings(store: str | None = None, temporal: str | None = None) -> Settings:
    """The settings of this process, with the store and Temporal's address that its arguments give.

    Raises InvalidInput that names the key, variable or line at fault.
    """
    _refuse_unknown_variables()
    arguments: dict[str, Any] = {"store": store} if store is not None else {}
    arguments |= {"temporal": {"address": temporal}} if temporal else {}
    try:
        return Settings(**arguments)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or CONFIG_FILE}: {e['msg']}" for e in error.errors()
        )
        raise InvalidInput(f"configuration: {faults}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{CONFIG_FILE} is not valid YAML: {' '.join(str(error).split())}") from error
    except SettingsError as error:
        raise InvalidInput(f"configuration: {error}") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{CONFIG_FILE} must hold names and values, one `name: value` a line") from error


def _refuse_unknown_variables() -> None:
    """One that is mistyped would be ignored."""
    known = [PREFIX + name.upper() for name in _names(Settings)]
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


def secret(variable: str) -> str:
    """The secret kept in environment variable `variable`; raises InvalidInput if it isn't set."""
    if (value := os.environ.get(variable)) is None:
        raise InvalidInput(
            f"environment variable {variable} is not set; it must hold the key of the model server"
        )
    return value


def cache_folder() -> Path:
    """Per user and shared between checkouts."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "clotho"


def program_on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def host_name(settings: Settings) -> str:
    """The configured name, else one that is made on first use and kept: it must outlive restarts."""
    if settings.host is not None:
        return settings.host
    path = cache_folder() / "host"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x") as file:
            file.write(f"{platform.node().lower()[:32]}-{uuid.uuid4().hex[:8]}")
    except FileExistsError:
        pass
    return path.read_text()
