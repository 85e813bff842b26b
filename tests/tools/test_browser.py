"""The browser with real pages: what it shows and does, what it refuses, and what outlives its end."""

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clotho.config import cache_folder
from clotho.identifiers.keys import tools_key
from clotho.plugins.browser.calls import SLOT
from clotho.plugins.browser.client import SCOPE_CHARS, BrowserClient
from clotho.plugins.browser.launch import chromium, lacking
from clotho.rollouts.group import ToolManifest
from clotho.rollouts.transcript import read_transcript
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from clotho.tools.tool import ToolOutcome
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually, start
from tests.tools.browse import Browse, end, processes, ref
from tests.tools.calls import REGISTRY, fields
from tests.tools.model_service import shared_server
from tests.tools.site import Site
from tests.workflows.scripts import say

NEVER = "/never?by-a-dying-worker"

pytestmark = pytest.mark.skipif(lacking() is not None, reason=str(lacking()))


@pytest.mark.slow
async def test_pages_are_read_clicked_and_typed_in(browse: Browse) -> None:
    home = await browse.to("/")
    assert (home["success"], home["title"], home["url"]) == (True, "Looms", f"{browse.site.url}/"), home
    pressed = await browse("click", ref=ref(home, "Press me"))
    assert pressed["success"]
    shown = await browse("snapshot")
    assert "clicked" in shown["snapshot"]
    assert (await browse("click", ref=f"@{ref(shown, 'Order')}"))["url"].endswith("/form")
    form = await browse("snapshot")
    assert (await browse("type", ref=ref(form, "Name"), text="Ariadne"))["success"]
    assert (await browse("type", ref=ref(form, "Size"), text="large"))["success"]
    sent = await browse("click", ref=ref(form, "Send"))
    assert sent["url"].endswith("/ordered?name=Ariadne&size=large"), sent
    assert "Ordered: name=Ariadne" in (await browse("snapshot"))["snapshot"]
    assert (await browse("back"))["title"] == "Order"


@pytest.mark.slow
async def test_a_rollout_uses_the_browser_and_leaves_none_behind(cluster: Cluster, site: Site) -> None:
    calls = (
        ScriptedCall(name="browser_navigate", arguments={"url": f"{site.url}/form"}),
        ScriptedCall(name="browser_type", arguments={"ref": "e4", "text": "Penelope"}),
        ScriptedCall(name="browser_click", arguments={"ref": "e7"}),
        ScriptedCall(name="browser_snapshot", arguments={}),
    )
    turns = (*(ScriptedTurn(calls=(call,)) for call in calls), say("Done."))
    overrides = {
        "enabled_toolsets": ["browser"],
        "plugins": {"browser": {"allow": [site.host], "seconds": PATIENCE_SECONDS}},
    }
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        await (await start(cluster, "browsing", url, overrides=overrides)).result()
    journal, rollout = cluster.open_journal(), "browsing/g000000/r0"
    transcript = await read_transcript(journal, rollout, len(turns))
    entries = [step.calls[0] for step in transcript.steps if step.calls]
    shown = [json.loads(entry.content) for entry in entries]
    assert [each["success"] for each in shown] == [True] * len(calls), shown
    assert shown[-1]["url"].endswith("/ordered?name=Penelope&size=small")
    assert entries[-1].state[SLOT]["url"] == shown[-1]["url"]  # type: ignore[index, call-overload]
    unavailable = (await journal.read_required(tools_key("browsing/g000000"), ToolManifest)).unavailable
    assert "raw commands" in unavailable["browser_cdp"]


async def test_dynamic_pages_frames_and_dialogs_are_handled(browse: Browse) -> None:
    dynamic = await browse.to("/dynamic")
    await browse("click", ref=ref(dynamic, "Load"))
    late = "document.querySelector('main').textContent === 'loaded late'"
    waited = f"new Promise(r => {{ const t = setInterval(() => {late} && (clearInterval(t), r(1)), 10) }})"
    assert (await browse("console", expression=waited))["result"] == 1
    await browse.to("/frames")

    async def inner() -> dict[str, Any] | None:
        shown = await browse("snapshot")
        return shown if '"Inner"' in shown["snapshot"] else None

    frames = await eventually(inner, "the page of the frame")
    assert (await browse("click", ref=ref(frames, "Inner")))["success"]
    assert "Inner pressed" in (await browse("snapshot"))["snapshot"]
    asking = await browse("click", ref=ref(await browse.to("/dialogs"), "Ask"))
    expected = {"type": "prompt", "message": "Which thread?", "default_value": "red"}
    assert asking["pending_dialog"] == expected, asking
    refused = await browse("click", ref="e2")
    assert not refused["success"] and refused["pending_dialog"] == expected
    assert (await browse("dialog", action="accept", prompt_text="blue"))["success"]
    assert "got blue" in (await browse("snapshot"))["snapshot"]
    assert not (await browse("dialog", action="accept"))["success"]


@pytest.mark.slow
async def test_what_the_page_writes_and_its_images_are_read(browse: Browse) -> None:
    await browse.to("/")
    said = await browse("console", clear=True)
    assert {"type": "log", "text": "ready"} in said["console_messages"]
    assert (await browse("console"))["console_messages"] == []
    assert (await browse("console", expression="throw new Error('my fault')"))["error"].endswith("my fault")
    [image] = (await browse("get_images"))["images"]
    assert image["alt"] == "a thread"
    assert (await browse("scroll", direction="down"))["success"] and (await browse("press", key="Tab"))[
        "success"
    ]
    assert not (await browse("press", key="NoSuchKey"))["success"]
    assert "No element of this page has the ref e99" in (await browse("click", ref="e99"))["error"]


@pytest.mark.slow
async def test_pages_reach_no_address_that_the_run_does_not_allow(browse: Browse) -> None:
    for path in ("/away", "/subresources"):
        shown = await browse.to(path)
        assert shown["success"] == (path == "/subresources"), shown
    assert "169.254.169.254" in (await browse.to("/away"))["error"]
    said = await browse("console", expression="fetch('http://10.0.0.1/').then(r => r.status)")
    assert said.get("result") == 403 or "Failed to fetch" in said["error"]
    for url in ("http://169.254.169.254/", "http://localhost:8099/", "https://example.org/", "http://[::1]/"):
        refused = await browse("navigate", url=url)
        assert not refused["success"] and "Refused" in refused["error"], refused


async def test_files_and_downloads_are_refused(browse: Browse) -> None:
    for url in (
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "view-source:file:///etc/passwd",
        "chrome://version",
    ):
        refused = await browse("navigate", url=url)
        assert not refused["success"] and "root:" not in json.dumps(refused)
    assert "Downloads are refused" in (await browse.to("/download"))["error"]
    files = await browse.to("/files")
    await browse("click", ref=ref(files, "passwd"))
    assert "root:" not in json.dumps(await browse("snapshot"))
    got = await browse("click", ref=ref(await browse.to("/files"), "get"))
    assert got["success"] and "a.bin" in await told(browse, got, "warning")


async def told(browse: Browse, first: dict[str, Any], field: str = "downloads") -> Any:
    """What a call, or one of those after it, tells of downloads: Chromium begins them in its own time."""

    async def later() -> Any:
        return (await browse("scroll", direction="down")).get(field)

    return first.get(field) or await eventually(later, "a download")


async def test_downloads_are_written_into_the_sandbox_where_the_run_allows_them(browse: Browse) -> None:
    browse.use(downloads_mb=1)
    await browse.to("/files")
    got = await browse.to("/download")
    assert got["downloads"] == [{"path": "/work/downloads/a.bin", "bytes": 4}], got
    assert await browse.calls.shell("cat /work/downloads/a.bin") == "bits"
    clicked = await browse("click", ref=ref(await browse.to("/files"), "get"))
    assert await told(browse, clicked) == got["downloads"]


async def test_a_call_that_has_downloaded_is_made_once(browse: Browse) -> None:
    """Its answer is kept with the file, until it was received; the file isn't in the next sandbox."""
    browse.use(downloads_mb=1)
    await browse.to("/")
    got = fields(await browse.calls.run("browser_navigate", {"url": f"{browse.site.url}/download"}))
    asked = browse.site.requests.count("/download")
    again = await browse.calls.attempt("browser_navigate", {"url": f"{browse.site.url}/download"})
    assert fields(again)["downloads"] == got["downloads"]
    assert browse.site.requests.count("/download") == asked
    assert await browse.calls.replay("browser_navigate", {"url": "x"}, again) is None


async def test_downloads_have_bounds_and_names_of_their_own(browse: Browse) -> None:
    browse.use(downloads_mb=0.5)
    large = await browse.to("/download?200000")
    assert not large["success"] and "larger than this run allows" in large["error"], large
    saves = "const a = document.createElement('a'); a.download = '../../.rc$'; a.href = 'data:,x'; a.click()"
    await browse.to("/")
    [odd] = await told(browse, await browse("console", expression=f"{{ {saves} }}"))
    assert odd["path"].startswith("/work/downloads/") and "$" not in odd["path"]
    await browse.calls.shell("rm -rf downloads; ln -s /etc downloads")
    [refused] = (await browse.to("/download"))["downloads"]
    assert "error" in refused, refused
    await browse.calls.shell("rm downloads")


async def test_a_model_sees_the_page(browse: Browse) -> None:
    server = shared_server()
    home = await browse.to("/")
    asked = len(server.asked)
    plain = await browse("vision", question="What is the heading?")
    assert plain["success"] and plain["analysis"] and plain["title"] == "Looms" and "screenshot" not in plain
    drawn = await browse("vision", question="What is the heading?", annotate=True)
    assert {ref(home, "Order"), ref(home, "Press me")} <= set(drawn["annotations"])
    images = []
    for _, _, given in server.asked[asked:]:
        text, image = given["messages"][0]["content"]
        assert "What is the heading?" in text["text"]
        images.append(image["image_url"]["url"])
    assert all(image.startswith("data:image/jpeg;base64,") for image in images)
    assert len(set(images)) == 2, "refs are drawn into the second one"
    left = await browse("console", expression="document.documentElement.children.length")
    assert left["result"] == 2, "and into the page for no longer"
    assert (await browse("click", ref=drawn["annotations"][1]))["success"]


async def test_a_page_is_not_seen_while_it_asks(browse: Browse) -> None:
    asking = await browse("click", ref=ref(await browse.to("/dialogs"), "Ask"))
    refused = await browse("vision", question="What?")
    assert not refused["success"] and refused["pending_dialog"] == asking["pending_dialog"]
    await browse("dialog", action="dismiss")


async def test_a_page_is_seen_once_however_often_the_call_is_tried(browse: Browse) -> None:
    server = shared_server()
    await browse.to("/")
    asked = len(server.asked)
    parts: dict[str, ToolOutcome] = {}

    async def once(name: str, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
        if name not in parts:
            parts[name] = await work()
        return parts[name]

    browse.calls.next()
    for _ in range(2):
        context = replace(browse.calls.context(), once=once)
        question = json.dumps({"question": "What?"})
        done = await browse.calls.dispatcher.run("browser_vision", question, REGISTRY.names, context)
        assert fields(done)["success"] and SLOT in done.state
    assert len(server.asked) == asked + 1


async def test_dialogs_may_follow_one_another_and_hold_up_expressions(browse: Browse) -> None:
    await browse.to("/")
    await browse("console", expression="setTimeout(() => { alert('one'); alert('two'); }, 0), 1")

    async def asked() -> bool:
        return "pending_dialog" in await browse("snapshot")

    await eventually(asked, "the first dialog")
    refused = await browse("console", expression="1 + 1")
    assert not refused["success"] and refused["pending_dialog"]["message"] == "one", refused
    assert (await browse("console"))["success"]
    await browse("dialog", action="accept")
    await eventually(asked, "the second dialog")
    assert (await browse("snapshot"))["pending_dialog"]["message"] == "two"
    await browse("dialog", action="accept")
    assert (await browse("console", expression="1 + 1"))["result"] == 2


def test_the_newest_of_playwrights_browsers_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.setattr("clotho.plugins.browser.launch.NAMES", ())
    for build in (999, 1000):
        (tmp_path / f"chromium-{build}" / "chrome-linux").mkdir(parents=True)
        (tmp_path / f"chromium-{build}" / "chrome-linux" / "chrome").touch()
    found = chromium()
    assert found is not None and "chromium-1000" in found.parts


async def test_a_page_that_never_loads_is_given_up(browse: Browse) -> None:
    browse.patience(0.5)
    assert "within 0.5 s" in (await browse.to("/never"))["error"]


@pytest.mark.slow
@pytest.mark.usefixtures("own_browser")
async def test_a_huge_page_is_cut(browse: Browse) -> None:
    browse.patience(20)
    shown = await browse.to("/huge")  # which takes longer than that on any machine
    assert len(json.dumps(shown)) < 10_000
    assert (await browse.to("/"))["title"] == "Looms", "the next page is shown"
    long = await browse.to("/long")
    assert "cut at 8,000" in long["snapshot"] and len(long["snapshot"]) < 8_300


@pytest.mark.parametrize("what", ["/relay.py", "clotho.plugins.browser.process.server"])
@pytest.mark.slow
async def test_a_browser_that_ended_is_started_again_as_it_was(
    browse: Browse, own_browser: Path, what: str
) -> None:
    dynamic = await browse.to("/dynamic")
    await browse("click", ref=ref(dynamic, "Load"))
    await browse(
        "console", expression="fetch('/late').then(r => r.text()).then(t => { localStorage.seen = t })"
    )
    await end(own_browser, [what])
    again = await browse("snapshot")
    assert "was started again" in again["note"] and again["url"].endswith("/dynamic")
    assert "kept loaded late visits=1" in again["snapshot"]
    await end(own_browser, [what])
    refused = await browse("click", ref=ref(again, "Load"))
    assert not refused["success"] and "was started again" in refused["error"], refused
    assert (await browse("click", ref=ref(refused, "Load")))["success"]


@pytest.mark.slow
async def test_a_browser_is_started_while_the_last_one_still_writes() -> None:
    scope = f"writing-{os.getpid()}"[:SCOPE_CHARS]
    folder = cache_folder() / "browsers" / scope
    (folder / "tmp").mkdir(parents=True)

    def write() -> None:
        for number in range(20_000):
            with suppress(FileNotFoundError):
                (folder / "tmp" / str(number)).touch()

    writing = asyncio.create_task(asyncio.to_thread(write))

    async def written() -> bool:
        return any((folder / "tmp").iterdir())

    try:
        await eventually(written, "the first file")
        async with BrowserClient(scope).connected():
            pass
    finally:
        await writing
        await end(folder)
        shutil.rmtree(folder)
        (folder.parent / f"{scope}.lock").unlink()


async def test_the_cache_of_a_browser_may_be_deeper_than_a_socket(
    browse: Browse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "/".join(["a-folder-with-a-long-name"] * 6)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(browse.calls.dispatcher, "scope", "deep")
    try:
        assert (await browse.to("/"))["title"] == "Looms"
    finally:
        await end(cache_folder() / "browsers" / "deep")


async def test_a_call_whose_answer_is_lost_is_not_made_again_unless_it_reads(browse: Browse) -> None:
    await browse.to("/form")
    browse.calls.next()
    before = len(browse.site.requests)

    async def begun() -> bool:
        return False

    context = replace(browse.calls.context(), claim=begun)
    arguments = json.dumps({"url": f"{browse.site.url}/ordered"})
    run = browse.calls.dispatcher.run
    done = fields(await run("browser_navigate", arguments, REGISTRY.names, context))
    assert not done["success"] and "interrupted" in done["error"] and "Send" in done["snapshot"]
    assert len(browse.site.requests) == before
    browse.calls.next()
    context = replace(browse.calls.context(), claim=begun)
    assert fields(await run("browser_snapshot", "{}", REGISTRY.names, context))["success"]


@pytest.mark.slow
async def test_a_worker_that_dies_in_a_call_leaves_no_browser_and_the_model_is_told(
    private_cluster: Cluster, site: Site
) -> None:
    calls = (
        ScriptedCall(name="browser_navigate", arguments={"url": f"{site.url}/form"}),
        ScriptedCall(name="browser_navigate", arguments={"url": f"{site.url}{NEVER}"}),
        ScriptedCall(name="browser_snapshot", arguments={}),
    )
    turns = (*(ScriptedTurn(calls=(call,)) for call in calls), say("Done."))
    overrides = {
        "enabled_toolsets": ["browser"],
        "plugins": {"browser": {"allow": [site.host], "seconds": 300}},
    }
    rollout, before = "dying/g000000/r0", processes("clotho.plugins.browser.process.server")
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        worker = await private_cluster.start_worker()
        handle = await start(private_cluster, "dying", url, overrides=overrides)

        async def asked() -> bool:
            return NEVER in site.requests

        await eventually(asked, "the page that never loads asked for")
        started = processes("clotho.plugins.browser.process.server") - before
        await worker.kill()

        async def gone() -> bool:
            return not started & processes("clotho.plugins.browser.process.server")

        await eventually(gone, "the end of the worker's browser")
        await private_cluster.start_worker()
        await handle.result()
    transcript = await read_transcript(private_cluster.open_journal(), rollout, len(turns))
    _, interrupted, shown = [json.loads(step.calls[0].content) for step in transcript.steps if step.calls]
    assert not interrupted["success"] and "interrupted" in interrupted["error"]
    assert "Send" in interrupted["snapshot"] and interrupted["url"].endswith("/form")
    assert shown["success"] and shown["url"].endswith("/form")
    assert site.requests.count(NEVER) == 1
