"""Pages of the web as hostile servers send them, on a local server that a fetcher of the tests' own may reach."""

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from clotho.errors import ServiceUnavailable
from clotho.failure_policy import StepAction, policy_for
from clotho.plugin_settings import sections_of
from clotho.plugins.web import addresses
from clotho.plugins.web.fetching import MOST_BYTES, MOST_HOPS, Fetcher
from clotho.plugins.web.settings import WebSettings
from clotho.plugins.web.web_extract import WebExtract
from clotho.tools.dispatch import Dispatcher
from clotho.tools.registry import Registry
from clotho.tools.tool import CallContext, ToolSettings
from tests.tools.pdf import pdf

LOOPBACK = "127.0.0.1"
SETTINGS = ToolSettings(plugins=sections_of(WebSettings(provider="tavily")))
ARTICLE = """<html><head><title>The  Fates</title></head><body><nav><a href="/">Home</a></nav><article>
<h1>Three sisters</h1><p>{}</p><p>Lachesis measures the thread, and Atropos cuts it when its time has come.</p>
</article><script>never()</script></body></html>"""
SENTENCE = "Clotho spins the thread of life for gods and mortals alike."
METADATA = "http://169.254.169.254/latest/meta-data/"


class Site:
    """A server of pages by path, that remembers the hosts it was asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.hosts: list[str] = []
        self.pages: dict[str, web.Response] = {}

    def url(self, path: str, host: str = LOOPBACK) -> str:
        return f"http://{host}:{self.port}/{path}"

    def put(self, path: str, body: bytes | str, **headers: str) -> str:
        content = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = web.Response(body=content, headers=named)
        return self.url(path)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.hosts.append(request.host)
        path = request.path.strip("/")
        if path == "endless":
            return await _endless(request)
        if path.startswith("redirect"):
            raise web.HTTPFound(request.query["to"])
        found = self.pages.get(path)
        if found is None:
            raise web.HTTPNotFound
        answer = web.StreamResponse(headers=found.headers)
        if "Content-Type" not in found.headers:
            answer.content_type = "text/html"
        await answer.prepare(request)
        assert isinstance(found.body, bytes)
        await answer.write(found.body)
        return answer


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/html"})
    await answer.prepare(request)
    while True:
        try:
            await answer.write(b"<p>and on</p>")
        except ConnectionError:
            return answer
        await asyncio.sleep(0.02)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


def reaching(**options: Any) -> Fetcher:
    """A fetcher that may connect to the local server, and to nothing else."""
    return Fetcher(allowed=lambda address: address == LOOPBACK, **options)


async def extracted(url: str, fetcher: Fetcher | None = None) -> dict[str, Any]:
    """The result of `url`, as the model reads it."""
    dispatcher = Dispatcher(Registry([WebExtract(fetcher or reaching())]), lambda name: None)
    context = CallContext("r", ("call", "0"), "call", SETTINGS, {}, None)
    done = await dispatcher.run("web_extract", json.dumps({"urls": [url]}), ["web_extract"], context)
    assert done.failure is None
    [result] = json.loads(done.content)["results"]
    return dict(result)


async def test_a_page_is_read_for_its_main_part(site: Site) -> None:
    found = await extracted(
        site.put("fates", ARTICLE.format(SENTENCE), Content_Type="text/html; charset=utf-8")
    )
    assert (found["title"], found["error"]) == ("The Fates", None)
    assert SENTENCE in found["content"] and "Three sisters" in found["content"]
    assert "never()" not in found["content"] and "Home" not in found["content"]


async def test_a_redirect_is_followed_and_the_last_page_is_read(site: Site) -> None:
    site.put("fates", ARTICLE.format(SENTENCE))
    found = await extracted(f"{site.url('redirect')}?to=/redirect?to=/fates")
    assert SENTENCE in found["content"] and len(site.hosts) == 3


async def test_redirects_without_end_are_told(site: Site) -> None:
    site.pages = {}
    nested = site.url("redirect") + "?to=" + "/redirect?to=" * (MOST_HOPS + 1) + "/"
    found = await extracted(nested)
    assert found["error"] == f"More than {MOST_HOPS} redirects" and len(site.hosts) == MOST_HOPS + 1


async def test_a_host_that_is_no_name_is_refused() -> None:
    found = await extracted(f"http://xn--{'9' * 100}/")
    assert found["error"] == "No valid URL: its host is no name"


@pytest.mark.parametrize(
    "target",
    [METADATA, "http://10.0.0.1/", "http://[::1]/", "http://[::ffff:169.254.169.254]/", "http://0x7f.1/"],
)
async def test_a_redirect_to_an_address_that_is_not_public_is_refused(site: Site, target: str) -> None:
    fetcher = Fetcher(allowed=lambda address: address == LOOPBACK or addresses.is_public(address))
    if "0x7f" in target:
        fetcher = Fetcher(allowed=addresses.is_public)
        found = await extracted(target, fetcher)
    else:
        found = await extracted(f"{site.url('redirect')}?to={target}", fetcher)
        assert len(site.hosts) == 1
    assert "isn't a public one" in found["error"] and found["content"] == ""


async def test_the_usual_fetcher_refuses_this_machine(site: Site) -> None:
    site.put("secret", ARTICLE.format(SENTENCE))
    for host in (LOOPBACK, "localhost", "0.0.0.0"):
        assert "isn't a public one" in (await extracted(site.url("secret", host), Fetcher()))["error"]
    assert site.hosts == []


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "ff02::1"),
        *("168.63.129.16", "192.0.0.192", "::ffff:168.63.129.16", "fec0::1"),
        *("::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
    ],
)
def test_what_is_not_of_the_internet_is_no_public_address(address: str) -> None:
    assert not addresses.is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "8.8.8.8", "2606:2800:220:1::1", "64:ff9b::808:808"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert addresses.is_public(address)


async def test_the_connection_goes_to_the_address_that_was_checked(site: Site) -> None:
    """A name that resolves to another address the second time is resolved once."""
    site.put("fates", ARTICLE.format(SENTENCE))
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return [LOOPBACK] if len(asked) == 1 else ["10.0.0.1"]

    found = await extracted(site.url("fates", "rebinding.test"), reaching(resolve=rebinding))
    assert SENTENCE in found["content"]
    assert (asked, site.hosts) == (["rebinding.test"], [f"rebinding.test:{site.port}"])


async def test_one_refused_address_of_a_name_refuses_it(site: Site) -> None:
    async def both(host: str, port: int) -> list[str]:
        return [LOOPBACK, "10.0.0.1"]

    found = await extracted(site.url("fates", "both.test"), reaching(resolve=both))
    assert "10.0.0.1, which isn't a public one" in found["error"] and site.hosts == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://example.org/", "//x", "", "http://", "http://a b/"]
)
async def test_other_urls_are_refused(url: str) -> None:
    assert (await extracted(url))["error"]


async def test_a_password_in_a_url_is_not_sent(site: Site) -> None:
    found = await extracted(f"http://me:secret@{LOOPBACK}:{site.port}/")
    assert "password" in found["error"] and site.hosts == []


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
async def test_a_page_that_unpacks_without_end_is_cut_off(site: Site, packing: str) -> None:
    zeros = b"\0" * (4 * MOST_BYTES)
    bomb = gzip.compress(zeros, 1) if packing == "gzip" else zlib.compress(zeros, 1)
    found = await extracted(site.put("bomb", bomb, Content_Encoding=packing))
    assert found["error"] == f"The page has more than {MOST_BYTES >> 20} MiB"


async def test_a_packed_page_is_unpacked_and_a_damaged_or_unknown_one_is_told(site: Site) -> None:
    packed = gzip.compress(ARTICLE.format(SENTENCE).encode())
    assert SENTENCE in (await extracted(site.put("good", packed, Content_Encoding="gzip")))["content"]
    damaged = await extracted(site.put("damaged", b"no gzip", Content_Encoding="gzip"))
    assert damaged["error"] == "The page is packed wrongly"
    for encoding in ("br", "zstd", "gzip, gzip"):
        unknown = await extracted(site.put("unknown", packed, Content_Encoding=encoding))
        assert encoding in unknown["error"]


async def test_a_page_that_never_ends_is_given_up(site: Site) -> None:
    found = await extracted(site.url("endless"), reaching(seconds=1.0))
    assert found["error"] == "The page took more than 1 s"


async def test_a_page_that_fails_is_told(site: Site) -> None:
    assert (await extracted(site.url("none")))["error"] == "The page answered HTTP 404"
    assert "can't be read: ConnectError" in (await extracted(f"http://{LOOPBACK}:1/"))["error"]


@pytest.mark.parametrize(
    ("body", "media_type", "text"),
    [
        ("plain text", "text/plain", "plain text"),
        ('{"a": 1}', "application/json", '{"a": 1}'),
        ("a: 1", "application/vnd.x+json", "a: 1"),
        ("Fäden".encode("latin-1"), "text/plain; charset=latin-1", "Fäden"),
        ("運命の糸".encode("shift_jis"), "text/plain; charset=Shift_JIS", "運命の糸"),
        ("Fäden".encode("utf-16"), "text/plain; charset=utf-16", "Fäden"),
        ("Fäden".encode(), "text/plain; charset=no-such", "Fäden"),
        (b"\xff\xfe\xfa halves", "text/plain; charset=utf-8", "\N{REPLACEMENT CHARACTER}" * 3 + " halves"),
        (b"\\ud800 half", "text/plain; charset=unicode_escape", "? half"),
    ],
)
async def test_text_of_any_kind_and_encoding_is_read(
    site: Site, body: str | bytes, media_type: str, text: str
) -> None:
    found = await extracted(site.put("text", body, Content_Type=media_type))
    assert (found["content"], found["error"]) == (text, None)


async def test_a_page_names_its_own_encoding(site: Site) -> None:
    page = ARTICLE.format("Die Schicksalsgöttin Klotho spinnt den Lebensfaden, wie es in den Büchern heißt.")
    declared = page.replace("<head>", '<head><meta charset="iso-8859-1">').encode("latin-1")
    assert "Schicksalsgöttin" in (await extracted(site.put("german", declared)))["content"]


@pytest.mark.parametrize(
    "media_type", ["image/png", "video/mp4", "application/zip", "application/octet-stream"]
)
async def test_what_is_no_text_is_told(site: Site, media_type: str) -> None:
    found = await extracted(site.put("file", b"\x89PNG\0\0", Content_Type=media_type))
    assert found["error"] == f"{media_type} isn't a page that can be read as text"


async def test_a_pdf_is_read_page_by_page(site: Site) -> None:
    found = await extracted(site.put("two", pdf(2), Content_Type="application/octet-stream"))
    assert found["content"] == "Page 1 tells of the thread.\n\nPage 2 tells of the thread."


async def test_a_long_pdf_is_read_only_as_far_as_it_is_shown(site: Site) -> None:
    found = await extracted(site.put("long", pdf(5_000), Content_Type="application/pdf"))
    assert found["error"] is None and found["content"].startswith("Page 1 tells of the thread.")
    assert found["content"].endswith("[… cut in page 300 of 5,000]")


async def test_a_damaged_pdf_is_told(site: Site) -> None:
    for body in (b"%PDF-1.4 and nothing", pdf(2)[:200]):
        assert "The PDF" in (await extracted(site.put("bad", body, Content_Type="application/pdf")))["error"]


async def test_no_network_is_no_result(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_names(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    async def one_name(host: str, port: int) -> list[str]:
        return [LOOPBACK] if host == "example.com" else await no_names(host, port)

    with pytest.raises(ServiceUnavailable, match="resolve names"):
        await extracted("http://fates.test/", reaching(resolve=no_names))
    assert "isn't known" in (await extracted("http://fates.test/", reaching(resolve=one_name)))["error"]
    monkeypatch.setattr(addresses, "has_route", lambda address: False)
    with pytest.raises(ServiceUnavailable, match="no route"):
        await extracted(site.url("fates"))
    assert policy_for("ServiceUnavailable").step is StepAction.RETRY
