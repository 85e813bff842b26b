"""`clotho tools`: what runs can offer, and what the other tools lack."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clotho.cli import app
from clotho.cli.tools import listing
from clotho.errors import InvalidInput
from clotho.plugin_settings import sections_of
from clotho.plugins.web.settings import WebSettings
from clotho.tools.registry import Registry
from clotho.tools.tool import ToolSettings


def listed(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["tools", "--json", *options])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return {tool["name"]: tool for tool in found["tools"]} | {"toolsets": found["toolsets"]}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a folder with a configuration of its own."""
    monkeypatch.chdir(tmp_path)


def test_every_tool_is_listed_with_what_it_lacks() -> None:
    found = listed()
    assert found["terminal"] == {
        "name": "terminal",
        "toolsets": ["terminal"],
        "sandboxed": True,
        "missing": None,
    }
    assert found["web_search"]["toolsets"] == ["browser", "search", "web"]
    assert "set web.provider" in found["web_search"]["missing"]
    assert "set services.vision" in found["vision_analyze"]["missing"]
    assert found["toolsets"]["debugging"] == ["file", "terminal", "web"]


def test_toolsets_and_environments_narrow_and_widen_it() -> None:
    assert set(listed("--toolset", "todo", "--toolset", "terminal")) == {
        *("todo", "terminal", "process", "toolsets")
    }
    own = listed("--environment", "examples.how_to.shop:Shop", "--toolset", "environment")
    assert {name: tool.get("sandboxed") for name, tool in own.items() if name != "toolsets"} == {
        **{"price": False, "put": False},
        "check_out": True,
    }


def test_a_provider_makes_the_web_available(tmp_path: Path) -> None:
    (tmp_path / "clotho.yaml").write_text("run:\n  plugins: {web: {provider: tavily}}\n")
    assert listed()["web_search"]["missing"] is None
    corpus = ToolSettings(plugins=sections_of(WebSettings(provider="offline", corpus="pages")))
    found = listing(Registry.discover(), ["web"], corpus)
    assert [tool["missing"] for tool in found["tools"]] == [None, None]


def test_unknown_names_are_refused() -> None:
    for options in (["--toolset", "nope"], ["--environment", "nope"]):
        assert isinstance(CliRunner().invoke(app, ["tools", *options]).exception, InvalidInput)


def test_the_table_names_every_tool() -> None:
    done = CliRunner().invoke(app, ["tools", "--toolset", "file"])
    assert done.exit_code == 0 and "read_file" in done.output and "in the sandbox" in done.output
