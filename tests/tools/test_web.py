"""Searches of providers as they answer, on a local server, and of corpora on disk."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext
from clotho.errors import HostUnavailable, InvalidInput, ServiceRejected, ServiceUnavailable
from clotho.failure_policy import StepAction, policy_for
from clotho.plugin_settings import sections_of
from clotho.plugins.web import corpus
from clotho.plugins.web.searching import MOST_BYTES
from clotho.plugins.web.settings import WebSettings
from clotho.run_settings import RunSettings
from clotho.runs.request import run_manifest
from clotho.testing import ScriptedCall, sandboxed_context
from clotho.tools.dispatch import Dispatcher
from clotho.tools.tool import CallContext, Dispatched, ToolSettings
from tests.tools.calls import REGISTRY, SETTINGS, fields

KEY = "key-of-the-provider"
PAGE = {"title": "Fates", "url": "https://example.org/fates"}
ANSWERS: dict[str, Any] = {
    "exa": {"requestId": "1", "results": [{**PAGE, "id": "1", "publishedDate": None, "text": "Three."}]},
    "tavily": {"query": "q", "answer": None, "results": [{**PAGE, "content": "Three.", "score": 0.9}]},
    "brave": {"type": "search", "web": {"type": "search", "results": [{**PAGE, "description": "Three."}]}},
    "firecrawl": {"success": True, "data": {"web": [{**PAGE, "description": "Three."}]}},
    "searxng": {"query": "q", "results": [{**PAGE, "content": "Three.", "engine": "e"}, PAGE]},
}
ASKED: dict[str, tuple[str, str, str, Any]] = {
    "exa": ("POST", "/search", "x-api-key", {"query": "q", "numResults": 1}),
    "tavily": ("POST", "/search", "Authorization", {"query": "q", "max_results": 1}),
    "brave": ("GET", "/res/v1/web/search", "X-Subscription-Token", {"q": "q", "count": "1"}),
    "firecrawl": ("POST", "/v2/search", "Authorization", {"query": "q", "limit": 1}),
    "searxng": ("GET", "/search", "", {"q": "q", "format": "json"}),
}


class Service:
    """A provider's server: it remembers what it was asked, and answers as it is told."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.body: Any = {}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        given = await request.json() if request.can_read_body else dict(request.query)
        self.asked.append((request.method, request.path, dict(request.headers), given))
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return web.Response(status=self.status, body=body, headers=self.headers)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def searched(settings: WebSettings | None, key: str | None = KEY, limit: int = 1) -> Dispatched:
    asked = ToolSettings(plugins=sections_of(settings) if settings else {})
    context = CallContext("r", ("call", "0"), "call", asked, {}, None)
    arguments = json.dumps({"query": "q", "limit": limit})
    return await Dispatcher(REGISTRY, lambda name: key).run("web_search", arguments, REGISTRY.names, context)


@pytest.mark.parametrize("provider", sorted(ANSWERS))
async def test_a_provider_is_asked_and_understood(service: Service, provider: Any) -> None:
    service.body = ANSWERS[provider]
    done = await searched(WebSettings(provider=provider, url=service.url))
    assert fields(done) == {
        "success": True,
        "data": {"web": [{**PAGE, "description": "Three.", "position": 1}]},
    }
    [(method, path, headers, given)] = service.asked
    wanted_method, wanted_path, header, body = ASKED[provider]
    assert (method, path) == (wanted_method, wanted_path) and given == {**given, **body}
    assert not header or headers[header].removeprefix("Bearer ") == KEY


@pytest.mark.parametrize("status", [408, 429, 500, 503, 302])
async def test_an_outage_is_retried_and_never_a_result(service: Service, status: int) -> None:
    service.status, service.headers = status, {"Retry-After": "7200"}
    with pytest.raises(ServiceUnavailable, match=f"tavily answered HTTP {status}") as raised:
        await searched(WebSettings(provider="tavily", url=service.url))
    assert raised.value.retry_after == timedelta(hours=1)
    assert KEY not in str(raised.value)
    assert policy_for("ServiceUnavailable").step is StepAction.RETRY


async def test_a_missing_or_refused_key_fails_at_once(service: Service) -> None:
    settings = WebSettings(provider="tavily", url=service.url)
    with pytest.raises(ServiceRejected, match="TAVILY_API_KEY is not set"):
        await searched(settings, key=None)
    service.status = 401
    with pytest.raises(ServiceRejected, match="HTTP 401"):
        await searched(settings)
    with pytest.raises(ServiceRejected, match=r"set web\.provider"):
        await searched(None)


async def test_a_key_out_of_a_file_may_end_in_a_newline(service: Service) -> None:
    service.body = ANSWERS["brave"]
    await searched(WebSettings(provider="brave", url=service.url), key=f"{KEY}\n")
    assert service.asked[0][2]["X-Subscription-Token"] == KEY


@pytest.mark.parametrize("key", [f"{KEY}\n{KEY}", f"{KEY}\N{SNOWMAN}", " \n"])
async def test_what_is_no_key_is_refused_and_never_told(service: Service, key: str) -> None:
    with pytest.raises(ServiceRejected, match="environment variable BRAVE_API_KEY") as raised:
        await searched(WebSettings(provider="brave", url=service.url), key=key)
    assert KEY not in str(raised.value) and not service.asked


@pytest.mark.parametrize("provider", sorted(ANSWERS))
async def test_a_refused_query_is_a_result(service: Service, provider: Any) -> None:
    status = service.status = 422 if provider == "brave" else 400
    service.body = {"error": {"code": "VALIDATION", "status": status}, "tag": "INVALID_REQUEST"}
    done = await searched(WebSettings(provider=provider, url=service.url))
    assert f"HTTP {status}" in fields(done)["error"] and done.failure is None


@pytest.mark.parametrize(
    ("provider", "status", "body"),
    [
        *(("tavily", status, {"detail": {"error": "refused"}}) for status in (401, 403, 432, 433)),
        *(("exa", status, {"tag": "NO_MORE_CREDITS"}) for status in (400, 401, 402, 403)),
        *(("firecrawl", status, {"success": False}) for status in (401, 402)),
        ("brave", 422, {"error": {"code": "SUBSCRIPTION_TOKEN_INVALID", "status": 422}}),
        ("brave", 400, {"error": {"code": "OPTION_NOT_IN_PLAN", "status": 400}}),
        ("searxng", 403, "Forbidden"),
        *((provider, status, b"<html>") for provider in ANSWERS for status in (400, 405, 422)),
    ],
)
async def test_what_is_no_fault_of_the_query_is_no_result(
    service: Service, provider: Any, status: int, body: Any
) -> None:
    service.status, service.body = status, body
    with pytest.raises(ServiceRejected, match=f"HTTP {status}"):
        await searched(WebSettings(provider=provider, url=service.url))


@pytest.mark.parametrize(
    "body", [b"<html>", [], {"results": [{"title": "no url"}]}, {"results": 3}, b" " * (MOST_BYTES + 1)]
)
async def test_what_is_no_answer_is_an_outage(service: Service, body: Any) -> None:
    service.body = body
    with pytest.raises(ServiceUnavailable):
        await searched(WebSettings(provider="exa", url=service.url))


async def test_a_server_that_is_not_there_is_an_outage(service: Service) -> None:
    with pytest.raises(ServiceUnavailable, match="can't be reached"):
        await searched(WebSettings(provider="exa", url="http://127.0.0.1:1"))


def test_a_folder_is_a_corpus_and_is_read_anew_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus, "FRESH_SECONDS", 0.0)
    folder = tmp_path / "pages"
    (folder / "sub").mkdir(parents=True)
    (folder / "one.md").write_text("Clotho spins.")
    (folder / "sub" / "two.txt").write_text("Atropos cuts.")
    assert [found.url for found in corpus.search(str(folder), "who cuts?", 5)] == ["corpus://sub/two.txt"]
    assert corpus.search(str(folder), '"; DROP TABLE "documents" * NEAR(', 5) == []
    assert corpus.search(str(folder), "?!", 5) == []
    assert corpus.document(str(folder), "corpus://one.md") == ("one", "Clotho spins.")
    assert corpus.document(str(folder), "file:///etc/passwd") is None
    (folder / "three.md").write_text("Lachesis cuts nothing.")
    assert len(corpus.search(str(folder), "cuts", 5)) == 2


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus that was searched before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "pages.jsonl"
    file.write_text('{"url": "a", "text": "Clotho spins."}\n')
    assert len(corpus.search(str(file), "spins", 5)) == 1
    return file


def test_an_index_that_vanished_is_made_again(pages: Path, tmp_path: Path) -> None:
    [index] = tmp_path.glob("cache/clotho/corpora/*.sqlite")
    index.unlink()
    assert len(corpus.search(str(pages), "spins", 5)) == 1
    assert corpus.document(str(pages), "a") == ("a", "Clotho spins.")


async def test_an_index_that_cannot_be_read_is_no_result(pages: Path, tmp_path: Path) -> None:
    [index] = tmp_path.glob("cache/clotho/corpora/*.sqlite")
    index.write_bytes(b"damaged" * 1_000)
    with pytest.raises(HostUnavailable, match="DatabaseError"):
        await searched(WebSettings(provider="offline", corpus=str(pages)))


async def test_a_corpus_that_cannot_be_read_is_no_result(pages: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / "clotho" / "corpora").rename(tmp_path / "aside")
    (tmp_path / "cache" / "clotho" / "corpora").write_text("no folder")
    with pytest.raises(HostUnavailable, match=r"FileExistsError|NotADirectoryError"):
        await searched(WebSettings(provider="offline", corpus=str(pages)))


def test_what_is_no_corpus_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = tmp_path / "pages.jsonl"
    lines.write_text('{"url": "a", "text": "b"}\n{"url": "c"}\n')
    with pytest.raises(InvalidInput, match="line 2"):
        corpus.search(str(lines), "b", 5)
    with pytest.raises(InvalidInput, match="is no JSONL file and no folder"):
        corpus.search(str(tmp_path / "none"), "b", 5)


@pytest.mark.parametrize(
    "settings", [{"provider": "offline"}, {"provider": "exa", "corpus": "x"}, {"provider": "searxng"}]
)
def test_incomplete_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="needs"):
        WebSettings.model_validate(settings)


class Research(Environment):
    """Questions over a corpus."""

    async def get_next_item(self) -> Item | None:
        return {"question": "Who undid a shroud by night?"}

    def format_prompt(self, item: Item) -> str:
        return str(item["question"])

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        pages = ctx.web_search("shroud")["data"]["web"]
        return float("Penelope" in ctx.web_extract([pages[0]["url"]])["results"][0]["content"])


def test_an_environment_names_its_corpus() -> None:
    toolsets: dict[str, Any] = {"enabled_toolsets": ("web",), "plugins": {"web": SETTINGS.plugins["web"]}}
    with sandboxed_context(Research(EnvironmentConfig(**toolsets))) as task:
        played = task.play(ScriptedCall(name="web_search", arguments={"query": "who undid a shroud"}))
        assert "https://example.org/loom" in str(played.messages[-1]["content"])
        assert task.reward().score == 1.0


def test_a_runs_settings_replace_those_of_its_environment() -> None:
    manifest = run_manifest(
        "file_tasks",
        "web",
        "model",
        overrides={"plugins": {"web": {"provider": "tavily"}}},
        settings=RunSettings(),
    )
    assert manifest.tool_settings.of(WebSettings) == WebSettings(provider="tavily")
    asked = manifest.with_settings(RunSettings(plugins='{"web": {"provider": "exa", "key": "OTHER_KEY"}}'))
    assert asked.tool_settings.of(WebSettings) == WebSettings(provider="exa", key="OTHER_KEY")
    with pytest.raises(InvalidInput, match="provider"):
        manifest.with_settings(RunSettings(plugins={"web": {"provider": "askjeeves"}}))
