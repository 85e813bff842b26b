"""The reference page of settings."""

from collections.abc import Iterator

from pydantic import BaseModel

from clotho.config import DELIMITER, PREFIX, settings_class
from clotho.dataset_config import DatasetConfig
from clotho.environment import EnvironmentConfig
from clotho.plugin import load, plugins
from clotho.plugins.atropos.compat.config import HermesAgentEnvConfig
from clotho.plugins.atropos.config import ClothoEnvConfig
from clotho.rollouts.run import SETTINGS, RunManifest
from clotho.run_settings import RunSettings
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.config import LocalConfig
from docs.generate.fields import code, default, described_fields, kind, section_of, shown, table

INTRODUCTION = """\
# Settings

This page is written by `python -m docs.generate` from the code.

```yaml title="clotho.yaml"
store: /shared/clotho
worker: {drain_seconds: 60}
run: {memory_mb: 8192, redact: [SEARCH_API_KEY]}
```

The same as environment variables: `CLOTHO_STORE=/shared/clotho CLOTHO_WORKER__DRAIN_SECONDS=60`. Environment
variables override `clotho.yaml` in the current folder, and flags override both. Unknown names are errors. Lists and
mappings are JSON in environment variables.
"""
PROCESSES = """\
## Processes

Settings of workers, the command line and the servers. Temporal's own variables (`TEMPORAL_ADDRESS`,
`TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`, `TEMPORAL_TLS…`) and AWS's (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, …) are
read by their libraries. `XDG_CACHE_HOME` says where the name of the host, a downloaded Temporal server and the
tokens of [HTTP servers](security.md#who-may-order-work) are kept. `CLOTHO_TOKEN` holds such a token, for servers
and clients.
"""
RUNS = """\
## Runs

What the rollouts of a run get. `clotho run` takes each as a flag (`--memory-mb 8192`), but for `plugins`, whose
fields it takes with `--set` as below; `clotho.yaml` and environment variables take it under `run`, and the adapter
as `--env.memory_mb 8192`. It belongs to the run: it can't be changed when the run is resumed, but for `budget` and
`prices`.
"""
OF_PLUGINS = """\
## Plugins of a run

The fields that `plugins` of a run, and of an environment, has for each installed plugin: `--set web.provider=exa`,
or `plugins: {web: {provider: exa}}`.
"""
ENVIRONMENTS = """\
## Environments

The fields of `EnvironmentConfig`. An environment's own class sets them and adds others;
`clotho run … --set max_agent_turns=10` and `--env.environment_config '{"max_agent_turns": 10}'` override them.
"""
DATASETS = """\
## Datasets

The fields of `dataset` in `clotho.yaml` and in an environment's configuration: [datasets as items](datasets.md).
"""
SANDBOXES = """\
## Sandboxes

The fields of `SandboxSpec`, which a sandbox backend is given. Runs and environments set them by the settings above.
"""
ADAPTER = """\
## Adapter

`python atropos_adapter.py serve` and `clotho serve` take these as `--env.NAME`, or under `env` in the file given
with `--config`, beside the fields of a run above and Atropos' own.
"""
IN_MEMORY = """\
## Environments of the in-memory design

Further fields of the adapter, for classes that derive from `HermesAgentBaseEnv`.
"""
COLUMNS = ("type", "default", "meaning")


NAMED = {"sandbox": LocalConfig().name}
"""Settings that a manifest holds as something else than a value, and what they are by default."""


def settings_page() -> str:
    parts = (
        INTRODUCTION,
        PROCESSES,
        table(("setting", "environment variable", *COLUMNS), _process_rows(settings_class())),
        "",
        RUNS,
        table(("setting", *COLUMNS), _run_rows()),
        "",
        OF_PLUGINS,
        table(("setting", *COLUMNS), _plugin_rows()),
        "",
        ENVIRONMENTS,
        _fields(EnvironmentConfig),
        "",
        DATASETS,
        _fields(DatasetConfig),
        "",
        SANDBOXES,
        _fields(SandboxSpec),
        "",
        ADAPTER,
        _fields(ClothoEnvConfig),
        "",
        IN_MEMORY,
        _fields(HermesAgentEnvConfig),
    )
    return "\n".join(parts) + "\n"


def _plugin_rows() -> Iterator[tuple[str, ...]]:
    for name, plugin in plugins().items():
        if plugin.run_settings is not None:
            for field, declared, meaning in described_fields(load(plugin.run_settings)):
                place = code(f"{name}.{field}")
                yield place, kind(declared.annotation), default(declared), meaning


def _process_rows(section: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field, meaning in described_fields(section):
        variable = PREFIX + DELIMITER.join((*path, name)).upper()
        row = (code(".".join((*path, name))), code(variable), kind(field.annotation))
        yield (*row, default(field), meaning)
    for name, field in section.model_fields.items():
        inner = section_of(field)
        if inner is not None and inner is not RunSettings:
            yield from _process_rows(inner, (*path, name))


def _run_rows() -> Iterator[tuple[str, ...]]:
    for name, field, meaning in described_fields(RunSettings):
        part = next((part for part, names in SETTINGS.items() if name in names), None)
        holder = RunManifest.model_fields[part].annotation if part else RunManifest
        assert holder is not None
        kept = holder.model_fields.get(name, RunSettings.model_fields[name])
        value = NAMED.get(name) or kept.get_default(call_default_factory=True)
        yield code(name), kind(field.annotation), code(shown(value)), meaning


def _fields(model: type[BaseModel]) -> str:
    rows = (
        (code(name), kind(field.annotation), default(field), meaning)
        for name, field, meaning in described_fields(model)
    )
    return table(("field", *COLUMNS), rows)
