"""Hides keys of the command line and of YAML files from Atropos, which prints its configuration."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from atroposlib.envs.server_handling.server_manager import APIServerConfig, ServerManagerConfig

from clotho.errors import InvalidInput

MASK = "***"
FLAG = "--openai.api_key"
SECTIONS = frozenset({"env", "openai", *ServerManagerConfig.model_fields})


class Secrets:
    """The keys that were taken out of a command, by the masks in their places."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}

    def conceal_flags(self, argv: Sequence[str]) -> list[str]:
        """The command with its keys masked, and without them in its YAML file.

        Raises InvalidInput for unknown sections and server fields.
        """
        shown = list(argv)
        for index, argument in enumerate(argv):
            flag, equals, value = argument.partition("=")
            last = index + 1 == len(argv)
            if flag == FLAG and equals:
                shown[index] = f"{FLAG}={self._mask(value)}"
            elif flag == FLAG and not last:
                shown[index + 1] = self._mask(argv[index + 1])
            elif flag == "--config" and equals:
                shown[index] = f"--config={self._conceal_file(Path(value))}"
            elif flag == "--config" and not last:
                shown[index + 1] = str(self._conceal_file(Path(argv[index + 1])))
        return shown

    def reveal(self, configs: Any) -> Any:
        """Copies of server configurations with keys in place of masks."""
        if isinstance(configs, list):
            return [self.reveal(config) for config in configs]
        if isinstance(configs, APIServerConfig) and configs.api_key in self._keys:
            return configs.model_copy(update={"api_key": self._keys[configs.api_key]})
        return configs

    @property
    def given(self) -> bool:
        return bool(self._keys)

    def _mask(self, key: str) -> str:
        mask = f"{MASK}{len(self._keys) or ''}"
        self._keys[mask] = key
        return mask

    def _conceal_file(self, path: Path) -> Path:
        """A copy of a YAML file without its keys, or the file itself where there are none."""
        try:
            content = yaml.safe_load(path.read_text()) or {}
        except (OSError, yaml.YAMLError) as error:
            raise InvalidInput(f"{path}: {' '.join(str(error).split())}") from error
        _check_names(path, content)
        found = [server for server in _servers(path, content) if server.get("api_key")]
        if not found:
            return path
        for server in found:
            server["api_key"] = self._mask(server["api_key"])
        # not deleted: Atropos opens it by its name later
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as copy:
            yaml.safe_dump(content, copy)
        return Path(copy.name)


def _check_names(path: Path, content: Any) -> None:
    """Refuse unknown names, which Atropos ignores."""
    if not isinstance(content, dict):
        raise InvalidInput(f"{path} must hold sections: {', '.join(sorted(SECTIONS))}")
    known = APIServerConfig.model_fields
    unknown = [name for name in content if name not in SECTIONS]
    for server in _servers(path, content):
        unknown += [f"openai.{name}" for name in server if name not in known]
    if unknown:
        raise InvalidInput(f"{path}: unknown: {', '.join(unknown)}")


def _servers(path: Path, content: dict[str, Any]) -> list[dict[str, Any]]:
    """The model servers of a configuration."""
    section = content.get("openai") or {}
    servers = section if isinstance(section, list) else [section]
    if not all(isinstance(server, dict) for server in servers):
        raise InvalidInput(f"{path}: openai must hold a server's fields, or a list of servers")
    if isinstance(section, list) and len(section) == 1:
        # Atropos' own `serve` passes over such a list
        raise InvalidInput(f"{path}: openai: give one server without the dash before it")
    return servers
