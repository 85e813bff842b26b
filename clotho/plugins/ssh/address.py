"""Settings of a machine that sandboxes are made on through ssh."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field, PositiveInt

from clotho.frozen_model import FrozenModel
from clotho.plugin_settings import PluginSettings


class SshHost(FrozenModel):
    """A machine that sandboxes are made on through ssh."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Its name among the hosts, which stays the same as long as it has sandboxes."""
    address: str
    """Its name or address in the network."""
    port: int = 22
    """Port of its ssh server."""
    user: str | None = None
    """User to log in as. Empty: this process's user."""
    key: Path | None = None
    """File of the private key. Empty: those of the ssh agent and of ~/.ssh."""
    known_hosts: Path = Path("~/.ssh/known_hosts")
    """File with the host's public key: one that shows another is refused."""
    capacity: PositiveInt = 16
    """Sandboxes that it may have at once."""
    command: str = "python3 -m clotho.plugins.ssh.remote"
    """Starts the server of its sandboxes there; the folder of the sandboxes is added."""
    root: str = "/tmp/clotho-ssh"
    """Folder of sandboxes there, as sandbox.root is here."""
    unsafe: bool = False
    """Run commands there without isolation where that can't be proved: they then own its user's files."""


class SshSettings(PluginSettings):
    """The machines that a worker makes sandboxes on."""

    plugin: ClassVar[str] = "ssh"
    hosts: tuple[SshHost, ...] = ()
    """The hosts of sandboxes, each with the fields that the page on sandbox backends names."""
