"""The backends under conformance test."""

from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.ssh.backend import SshBackend
from clotho.plugins.ssh.remote.backend import RemoteBackend
from clotho.sandbox.local.backend import LocalBackend
from examples.how_to.plain_backend import PlainBackend

Backend = LocalBackend | PlainBackend | ContainerBackend | RelayedBackend | RemoteBackend | SshBackend
