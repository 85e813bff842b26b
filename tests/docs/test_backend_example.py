"""The backend of the how-to page does what backends promise, as far as that needs no isolation."""

from pathlib import Path

import pytest

from clotho.sandbox.backend import SandboxBackend, SandboxSpec
from examples.how_to.plain_backend import PlainBackend
from tests.sandbox import (
    test_conformance_checkpoints,
    test_conformance_files,
    test_conformance_jobs,
    test_conformance_leases,
    test_conformance_verifier,
)
from tests.sandbox.conftest import copies, lease, own, shell

__all__ = ["copies", "lease", "own", "shell"]

SUITE = (
    test_conformance_checkpoints,
    test_conformance_files,
    test_conformance_jobs,
    test_conformance_leases,
    test_conformance_verifier,
)
OF_THE_LOCAL_BACKEND = {
    "test_another_worker_attaches_to_the_same_epoch",
    "test_attempt_killed_in_the_middle_is_attached_to",
    "test_file_that_shrinks_fails_the_archive",
    "test_host_reaps_what_outlives_its_lease",
    "test_loops_come_and_go",
    "test_sandbox_outlives_the_worker_that_made_it",
}
"""Tests that start another process over the local backend, or look into its folders."""

globals().update(
    {
        name: test
        for module in SUITE
        for name, test in vars(module).items()
        if name.startswith("test_") and name not in OF_THE_LOCAL_BACKEND
    }
)


@pytest.fixture(scope="session")
def kind() -> str:
    return "bare"


@pytest.fixture(scope="session")
def spec() -> SandboxSpec:
    return SandboxSpec(unsafe_local=True)


@pytest.fixture(scope="session")
def backend(folder: Path) -> SandboxBackend:
    return PlainBackend(folder / "plain")
