from typing import Any, ClassVar, cast

import pytest
from pydantic import JsonValue

from clotho.errors import InvalidInput
from clotho.plugin import Plugin
from clotho.plugin_settings import sections_of
from clotho.plugins.browser.launch import lacking
from clotho.plugins.browser.settings import BrowserSettings
from clotho.plugins.mcp.settings import McpServer, McpSettings
from clotho.plugins.services.settings import ModelService, ModelServices
from clotho.plugins.skills.settings import SkillsSettings
from clotho.plugins.web.settings import WebSettings
from clotho.tools import catalogue, registry
from clotho.tools.delegation import DelegationSettings
from clotho.tools.distributions import DISTRIBUTIONS, draws
from clotho.tools.registry import Registry
from clotho.tools.resolution import check_names, resolve
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings


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


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        (ToolSettings(), "600"),
        (ToolSettings(terminal_timeout=900), "900"),
        (ToolSettings(terminal_timeout=20, longest_command_seconds=60), "60"),
    ],
)
def test_the_terminal_tells_the_longest_time_that_it_grants(
    installed: Registry, settings: ToolSettings, most: str
) -> None:
    terminal = installed.get("terminal")
    assert terminal is not None
    timeout = function(terminal.schema(settings))["parameters"]["properties"]["timeout"]
    assert timeout["description"].endswith(f"at most {most}")


def test_two_tools_of_one_name_are_refused() -> None:
    class Other(Weather):
        pass

    with pytest.raises(InvalidInput, match="weather"):
        Registry([Weather(), Other()])


def offer(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Have one plugin installed, which offers the tool `target`."""
    offering = {"sky": Plugin("sky", tools=(target,))}
    monkeypatch.setattr(registry, "plugins", lambda: offering)


def test_finds_tools_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, f"{__name__}:Weather")
    found = Registry.discover()
    assert found.get("weather") is not None
    assert resolve(found, ["weather"]).toolsets == ("weather",)


@pytest.mark.parametrize("target", ["json:dumps", "nowhere:Tool", "json:Nothing"])
def test_what_is_no_tool_is_refused(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    offer(monkeypatch, target)
    with pytest.raises(InvalidInput, match=target):
        Registry.discover()


def test_none_means_everything_and_an_empty_list_nothing(installed: Registry) -> None:
    corpus = WebSettings(provider="offline", corpus="pages.jsonl")
    model = ModelService(url="http://127.0.0.1:1/v1", model="m")
    services = ModelServices(vision=model, image=model, moa=(model,))
    settings = ToolSettings(
        plugins=sections_of(corpus, SkillsSettings(folder="skills"), services, BrowserSettings()),
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
    assert "set web.provider" in resolution.unavailable["web_search"]


def test_what_is_not_built_is_reported(installed: Registry) -> None:
    assert resolve(Registry([]), ["vision"]).unavailable == {"vision_analyze": "not built in this version"}
    resolution = resolve(installed, ["vision", "memory"])
    assert resolution.tools == ()
    assert "set services.vision" in resolution.unavailable["vision_analyze"]
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
    balanced = DISTRIBUTIONS["balanced"]
    assert len({next(draws(balanced, seed)) for seed in range(50)}) > 10


def test_distributions_follow_their_probabilities() -> None:
    drawn = [next(draws(DISTRIBUTIONS["browser_tasks"], seed)) for seed in range(2_000)]
    assert 0.11 < sum("terminal" in draw for draw in drawn) / len(drawn) < 0.19
    only = DISTRIBUTIONS["terminal_only"]
    assert all(next(draws(only, seed)) == {"file", "terminal"} for seed in range(20))


def test_probabilities_of_one_s_own_are_drawn(installed: Registry) -> None:
    own = {"todo": 0.5, "debugging": 0.5}
    drawn = {resolve(installed, distribution=own, seed=seed).toolsets for seed in range(100)}
    assert drawn == {("todo",), ("file", "terminal"), ("file", "terminal", "todo")}


def test_a_sample_without_tools_is_drawn_again(installed: Registry) -> None:
    rare = {"todo": 0.01, "web": 1.0}
    assert all(resolve(installed, distribution=rare, seed=seed).toolsets == ("todo",) for seed in range(20))
    for seed in range(20):
        found = resolve(installed, disabled=["terminal"], distribution="terminal_only", seed=seed)
        assert found.toolsets == ("file",)


def test_a_distribution_that_no_tool_is_there_for_says_what_is_missing(installed: Registry) -> None:
    with pytest.raises(
        InvalidInput, match=r"no sample of the distribution leaves a tool: .*web_search: .*set web.provider"
    ):
        resolve(installed, distribution="minimal")
    with pytest.raises(InvalidInput, match="all of its tools are disabled"):
        resolve(installed, disabled=["todo"], distribution={"todo": 1})


def test_servers_are_added_to_a_sample_unless_it_names_them() -> None:
    class Note(Weather):
        name = "mcp_notes_add"
        toolset = "mcp-notes"

    registry = Registry([Weather(), Note()])
    settings = ToolSettings(
        plugins=sections_of(McpSettings(servers={"notes": McpServer(command=("notes",))}))
    )

    def toolsets(distribution: dict[str, float]) -> set[tuple[str, ...]]:
        return {
            resolve(registry, distribution=distribution, seed=seed, settings=settings).toolsets
            for seed in range(100)
        }

    assert toolsets({"weather": 0.5}) == {("mcp-notes",), ("mcp-notes", "weather")}
    assert toolsets({"weather": 1, "mcp-notes": 0.5}) == {("weather",), ("mcp-notes", "weather")}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((["termnal"], (), None), "unknown toolset 'termnal'"),
        ((None, ["termnal"], None), "unknown toolset 'termnal'"),
        ((None, (), {"termnal": 1}), "unknown toolset 'termnal'"),
        ((None, (), "nope"), "unknown distribution 'nope'"),
        ((["todo"], (), "minimal"), "exclude"),
    ],
)
def test_names_are_checked_before_anything_is_drawn(installed: Registry, names: Any, said: str) -> None:
    check_names(installed, ["todo", "mcp-notes"], ["web"], None)
    with pytest.raises(InvalidInput, match=said):
        check_names(installed, *names)


def test_distributions_name_known_toolsets_and_probabilities() -> None:
    for chances in DISTRIBUTIONS.values():
        assert set(chances) <= set(catalogue.LEAVES)
        assert all(0 < chance <= 1 for chance in chances.values())


def test_toolsets_of_children_have_to_be_known(installed: Registry) -> None:
    with pytest.raises(InvalidInput, match="unknown toolset 'shell'"):
        resolve(
            installed, ["delegation"], settings=ToolSettings(delegation=DelegationSettings(tools=("shell",)))
        )
