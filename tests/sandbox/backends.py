"""The backends under conformance test."""

from clotho.sandbox.local.backend import LocalBackend
from clotho.testing.plain_backend import PlainBackend

Backend = LocalBackend | PlainBackend
