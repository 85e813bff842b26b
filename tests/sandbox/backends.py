"""The backends under conformance test."""

from clotho.sandbox.containers.backend import ContainerBackend
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.relay.backend import RelayedBackend
from clotho.sandbox.remote.backend import RemoteBackend
from clotho.sandbox.ssh.backend import SshBackend
from examples.how_to.plain_backend import PlainBackend

Backend = LocalBackend | PlainBackend | ContainerBackend | RelayedBackend | RemoteBackend | SshBackend
