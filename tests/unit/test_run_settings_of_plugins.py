"""What a run sets for plugins: merged by field, checked by the plugin, and refused where there is none."""

from collections.abc import Callable
from typing import Any

import pytest

from clotho.cli.assignments import parse_overrides, parse_plugin_fields
from clotho.errors import HostUnavailable, InvalidInput
from clotho.failure_policy import StepAction, policy_for
from clotho.plugins.browser.settings import BrowserSettings
from clotho.plugins.services.settings import ModelServices
from clotho.rollouts.run import RunManifest
from clotho.run_settings import RunSettings
from clotho.runs.request import run_manifest
from clotho.tools.tool import ToolSettings

OF_ENVIRONMENT: dict[str, Any] = {"browser": {"allow": ["a.org"], "seconds": 5}, "skills": {"folder": "/s"}}


def manifest(*settings: RunSettings) -> RunManifest:
    overrides = {"plugins": OF_ENVIRONMENT}
    return run_manifest("file_tasks", "r", "m", overrides=overrides).with_settings(*settings)


def test_each_field_that_is_set_overrides_that_field_alone() -> None:
    of_machine = RunSettings(plugins={"browser": {"seconds": 7}, "services": {"max_calls": 3}})
    of_user = RunSettings(plugins={"browser": {"seconds": 9}})
    settings = manifest(of_machine, of_user).tool_settings
    assert settings.of(BrowserSettings) == BrowserSettings(allow=("a.org",), seconds=9)
    assert settings.of(ModelServices) == ModelServices(max_calls=3)


def test_a_plugin_that_is_null_has_no_settings() -> None:
    settings = manifest(RunSettings(plugins={"browser": None})).tool_settings
    assert settings.of(BrowserSettings) is None and set(settings.plugins) == {"skills"}


def test_a_manifest_has_every_field_so_that_new_defaults_change_no_run() -> None:
    assert manifest().tool_settings.plugins["browser"] == BrowserSettings(
        allow=("a.org",), seconds=5
    ).model_dump(mode="json")


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        ({"lamp": {"lit": True}}, r"plugins\.lamp: the plugin is not installed here; .* browser, "),
        ({"s3": {"bucket": "b"}}, r"plugins\.s3: the plugin has no settings of a run"),
        ({"browser": {"alow": []}}, r"plugins\.browser: alow"),
        ({"browser": {"seconds": 0}}, r"plugins\.browser: seconds"),
        ({"browser": "all"}, r"plugins\.browser: give its fields as an object"),
    ],
)
def test_what_no_plugin_takes_is_refused_by_name(plugins: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        manifest(RunSettings(plugins=plugins))


def test_assignments_with_a_dot_are_fields_of_plugins() -> None:
    given = ["max_agent_turns=3", 'browser.allow=["b.org"]', "web.provider=exa", "note=a.b=c"]
    assert parse_overrides(given) == {"max_agent_turns": 3, "note": "a.b=c"}
    assert parse_plugin_fields(given) == {"browser": {"allow": ["b.org"]}, "web": {"provider": "exa"}}


def test_a_worker_without_the_plugin_tries_again_later() -> None:
    settings = ToolSettings(plugins={"lamp": {"lit": True}})
    with pytest.raises(
        HostUnavailable, match="the plugin lamp of this run isn't installed on this host"
    ) as gone:
        _ = settings.secrets
    assert policy_for(type(gone.value).__name__).step is StepAction.RETRY


@pytest.mark.parametrize(
    "read", [lambda settings: settings.secrets, lambda settings: settings.of(BrowserSettings)]
)
def test_a_worker_with_another_version_of_the_plugin_tries_again_later(
    read: Callable[[ToolSettings], object],
) -> None:
    settings = ToolSettings(plugins={"browser": {"a_later_field": True}})
    with pytest.raises(
        HostUnavailable,
        match=r"another version of the plugin browser than the run was started with: .*a_later_field",
    ) as other:
        read(settings)
    assert policy_for(type(other.value).__name__).step is StepAction.RETRY
