"""The clouds themselves: tested where this process was given credentials for them, in place of their imitations."""

import pytest

from clotho.config import variable
from clotho.plugins.clouds.config import CloudConfig, DaytonaConfig, E2bConfig, ModalConfig
from clotho.sandbox.backend import SandboxSpec
from tests.sandbox.clouds.cloud import DAYTONA, E2B, MODAL, spec_of

IMAGE = "python:3.12-bookworm"
"""An image that has all the programs that the conformance suite calls."""
SPECS: dict[str, CloudConfig] = {
    "modal": ModalConfig(image=IMAGE),
    "e2b": E2bConfig(image=IMAGE),
    "daytona": DaytonaConfig(image=IMAGE),
}
CREDENTIALS = {
    "modal": (MODAL.token_id_variable, MODAL.token_secret_variable),
    "e2b": (E2B.api_key_variable,),
    "daytona": (DAYTONA.api_key_variable,),
}
MISSING = {
    cloud: next((name for name in names if not variable(name)), None) for cloud, names in CREDENTIALS.items()
}
"""The first variable of each that isn't set: seen before imitations set theirs."""
KINDS = {f"{cloud}-live": cloud for cloud in CREDENTIALS}


def require_live(cloud: str) -> None:
    if (name := MISSING[cloud]) is not None:
        pytest.skip(f"not run: {name} isn't set")
    pytest.importorskip(cloud, reason=f"needs the package {cloud}")


def require_imitated(cloud: str) -> None:
    """One process has one of the two, since their packages read the same variables."""
    if MISSING[cloud] is None:
        pytest.skip(f"{', '.join(CREDENTIALS[cloud])} are set: the cloud itself is tested")


def live_spec(cloud: str) -> SandboxSpec:
    return spec_of(SPECS[cloud])
