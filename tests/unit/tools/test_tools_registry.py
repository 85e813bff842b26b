import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType
from typing import Any, ClassVar, cast

import pytest
from pydantic import JsonValue

from clotho.errors import InvalidInput
from clotho.tools import catalogue, registry
from clotho.tools.browser.launch import lacking
from clotho.tools.browser.settings import BrowserSettings
from clotho.tools.delegation import DelegationSettings
from clotho.tools.distributions import DISTRIBUTIONS, sample
from clotho.tools.registry import Registry, tools_in
from clotho.tools.resolution import resolve
from clotho.tools.services.settings import ModelService, ModelServices
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings
from clotho.tools.web.settings import WebSettings


class Weather(Tool):
    name = "weather"
    toolset = "weather"
    description = "Say what the sky looks like."
    parameters: ClassVar = {"type": "object", "properties": {}}
    sandboxed = False

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return ToolOutcome(content="blue")


class WebSearch(Weather):
    name = "web_search"
    toolset = "web"

    def missing(self, settings: ToolSettings) -> str | None:
        return "no search key is configured"


def test_parameters_that_are_no_schema_are_refused() -> None:
    class Broken(Weather):
        parameters: ClassVar = {"type": "objekt"}

    with pytest.raises(
        InvalidInput, match="the parameters of tool 'weather' are no JSON schema: 'objekt' is"
    ):
        Registry([Broken()])


def function(schema: dict[str, JsonValue]) -> dict[str, Any]:
    return cast(dict[str, Any], schema["function"])


@pytest.fixture(scope="module")
def installed() -> Registry:
    return Registry.discover()


def test_discovers_every_tool_of_the_package_once(installed: Registry) -> None:
    assert set(installed.names) >= {
        *("patch", "process", "read_file", "search_files", "terminal", "todo", "write_file")
    }
    assert list(installed.names) == sorted(installed.names)
    for tool in installed:
        assert tool.name in catalogue.LEAVES[tool.toolset]
        assert function(tool.schema())["name"] == tool.name


def test_a_module_offers_the_tools_it_defines_and_not_those_it_imports() -> None:
    module = ModuleType("sky")
    vars(module).update(Tool=Tool, Weather=Weather)
    assert list(tools_in(module)) == []
    assert Weather in list(tools_in(sys.modules[__name__]))


def test_two_tools_of_one_name_are_refused() -> None:
    class Other(Weather):
        pass

    with pytest.raises(InvalidInput, match="weather"):
        Registry([Weather(), Other()])


def test_finds_tools_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("weather", f"{__name__}:Weather", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    found = Registry.discover()
    assert found.get("weather") is not None
    assert resolve(found, ["weather"]).toolsets == ("weather",)


def test_an_entry_point_that_is_no_tool_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("weather", "json:dumps", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]))
    with pytest.raises(InvalidInput, match="json:dumps"):
        Registry.discover()


def test_none_means_everything_and_an_empty_list_nothing(installed: Registry) -> None:
    corpus = WebSettings(provider="offline", corpus="pages.jsonl")
    model = ModelService(url="http://127.0.0.1:1/v1", model="m")
    services = ModelServices(vision=model, image=model, moa=(model,))
    settings = ToolSettings(
        web=corpus,
        skills="skills",
        services=services,
        browser=BrowserSettings(),
        delegation=DelegationSettings(),
    )
    everything = resolve(installed, settings=settings)
    absent = [name for name in installed.names if name.startswith("browser_")] if lacking() else []
    assert {*installed.names} - {tool.name for tool in everything.tools} == {*absent}
    assert everything.unavailable == dict.fromkeys(absent, lacking())
    assert set(everything.toolsets) >= {"terminal", "todo"}
    assert resolve(installed, []).tools == () == resolve(installed, []).toolsets


def test_schemas_are_sorted_by_name(installed: Registry) -> None:
    names = [function(schema)["name"] for schema in resolve(installed, ["todo", "terminal"]).schemas]
    assert names == ["process", "terminal", "todo"]


def test_disabled_is_taken_off_last(installed: Registry) -> None:
    resolution = resolve(installed, ["debugging", "todo"], disabled=["terminal"])
    assert not {"terminal", "process"} & {tool.name for tool in resolution.tools}
    assert "terminal" not in resolution.toolsets
    assert "todo" in resolve(installed, disabled=["debugging"]).toolsets


def test_a_composite_is_its_leaves(installed: Registry) -> None:
    resolution = resolve(installed, ["debugging"])
    assert {"terminal", "process"} <= {tool.name for tool in resolution.tools}
    assert set(resolution.unavailable) == {"web_search", "web_extract"}
    assert "set `web`" in resolution.unavailable["web_search"]


def test_what_is_not_built_is_reported(installed: Registry) -> None:
    assert resolve(Registry([]), ["vision"]).unavailable == {"vision_analyze": "not built in this version"}
    resolution = resolve(installed, ["vision", "memory"])
    assert resolution.tools == ()
    assert "set `services`" in resolution.unavailable["vision_analyze"]
    assert resolution.unavailable["memory"] == "not available in RL environments"


def test_a_missing_requirement_is_reported_with_its_reason() -> None:
    resolution = resolve(Registry([WebSearch(), Weather()]))
    assert [tool.name for tool in resolution.tools] == ["weather"]
    assert resolution.unavailable == {"web_search": "no search key is configured"}
    assert resolution.toolsets == ("weather",)


@pytest.mark.parametrize("arguments", [{"enabled": ["termnal"]}, {"disabled": ["termnal"]}])
def test_an_unknown_toolset_is_an_error_that_names_the_known_ones(
    installed: Registry, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput, match=r"'termnal'; known are .*debugging.*terminal"):
        resolve(installed, **arguments)


def test_distribution_excludes_enabled(installed: Registry) -> None:
    with pytest.raises(InvalidInput, match="exclude"):
        resolve(installed, ["todo"], distribution="minimal")


def test_an_unknown_distribution_is_an_error_that_names_the_known_ones(installed: Registry) -> None:
    with pytest.raises(InvalidInput, match="terminal_only"):
        resolve(installed, distribution="nope")


def test_a_distribution_is_sampled_by_its_seed(installed: Registry) -> None:
    assert resolve(installed, distribution="development", seed=7) == resolve(
        installed, distribution="development", seed=7
    )
    assert len({sample("balanced", seed) for seed in range(50)}) > 10


def test_distributions_follow_their_probabilities() -> None:
    draws = [sample("browser_tasks", seed) for seed in range(2_000)]
    assert 0.11 < sum("terminal" in draw for draw in draws) / len(draws) < 0.19
    assert all(sample("terminal_only", seed) == ("file", "terminal") for seed in range(20))


def test_a_distribution_never_draws_nothing() -> None:
    assert all(sample("reasoning", seed) for seed in range(500))
    assert any(sample("reasoning", seed) == ("moa",) for seed in range(500))


def test_distributions_name_known_toolsets_and_probabilities() -> None:
    for chances in DISTRIBUTIONS.values():
        assert set(chances) <= set(catalogue.LEAVES)
        assert all(0 < chance <= 1 for chance in chances.values())


def test_toolsets_of_children_have_to_be_known(installed: Registry) -> None:
    with pytest.raises(InvalidInput, match="unknown toolset 'shell'"):
        resolve(
            installed, ["delegation"], settings=ToolSettings(delegation=DelegationSettings(tools=("shell",)))
        )
