"""A browser call of a rollout: made once in the browser of its host, with the state that the last one left."""

import base64
import re
from typing import Any, cast

from clotho.errors import FileRefused, HostUnavailable
from clotho.identifiers.ids import job_key
from clotho.plugins.browser.client import BrowserClient, BrowserGone, Conversation, Fields
from clotho.plugins.browser.launch import lacking
from clotho.plugins.browser.settings import BrowserSettings
from clotho.sandbox.backend import Job
from clotho.tools import shell
from clotho.tools.results import text
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

SLOT, STORAGE = "browser", "browser_storage"
DOWNLOADS = "downloads"
MOST_NAME_CHARS = 100
NOT_IN_NAMES = re.compile(r"[^\w.() +-]")
SITE_SECONDS = 30.0
MOST_SITE_BYTES = 16 << 20
MOST_STARTS = 3
NOT_CONFIGURED = "the run names no pages that may be opened: set browser.allow"
FAILED_SITE = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"


class BrowserTool(Tool):
    """A tool of the browser: its calls are made in a process apart, and have effects on pages."""

    toolset = "browser"

    def missing(self, settings: ToolSettings) -> str | None:
        return NOT_CONFIGURED if settings.of(BrowserSettings) is None else lacking()

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome | None:
        """Answer as before: the browser has kept its state. None where the sandbox served pages or took files."""
        settings = context.settings.of(BrowserSettings)
        return (
            None
            if (settings is not None and settings.sites) or f'"{DOWNLOADS}": ' in shown
            else ToolOutcome(content=shown)
        )

    async def made(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        """Make the call, or tell the model that an attempt at it was interrupted, and show the page."""
        settings = context.settings.of(BrowserSettings)
        if settings is None:
            return ToolOutcome(content=text(success=False, error=NOT_CONFIGURED), error=NOT_CONFIGURED)
        # first: a lost sandbox can neither serve pages nor take their files
        await shell.require_alive(context)
        begun = False
        for _ in range(MOST_STARTS):
            async with BrowserClient(context.scope).connected() as browser:
                try:
                    known = await self._opened(browser, context, settings)
                except BrowserGone:  # before it was told of the call
                    continue
                # a call that the browser knows is joined; else an earlier claim means that it may have acted
                if self.changes_workspace and not known and not begun:
                    begun = not await context.claim()
                try:
                    return await self._answer(browser, arguments, context, settings, begun)
                except BrowserGone:
                    # it may have acted before it ended: the next try only looks at the page
                    begun = self.changes_workspace
        raise HostUnavailable("the browser's process ends again and again")

    async def _opened(self, browser: Conversation, context: CallContext, settings: BrowserSettings) -> bool:
        """Open the session; returns whether the browser has made this call already, or is making it."""
        answer = await browser.ask(
            {
                "do": "open",
                # pages of a lost sandbox aren't the restored one's, which begin from the journalled state
                "session": job_key(context.sandbox.incarnation, settings.model_dump_json()),
                "rollout": context.rollout,
                "key": context.call_key,
                # names alone: the commands behind them run in the sandbox, by this worker
                "settings": {**settings.model_dump(mode="json"), "sites": [*settings.sites]},
            }
        )
        if "known" not in answer:
            raise HostUnavailable(answer.get("failed") or "every page of this host's browser is in use")
        return bool(answer["known"])

    async def _answer(
        self,
        browser: Conversation,
        arguments: Arguments,
        context: CallContext,
        settings: BrowserSettings,
        begun: bool,
    ) -> ToolOutcome:
        before = cast(Fields, context.state.get(SLOT) or {})

        async def site(number: int, host: str, request: bytes) -> bytes:
            return await _served(settings.sites[host], request, context, number)

        call: Fields = {
            "tool": self.name,
            "arguments": arguments,
            "begun": begun,
            "expect": before.get("last"),
            "url": before.get("url"),
            "storage": context.state.get(STORAGE),
        }
        answer = await browser.ask(call, site)
        if "failed" in answer:
            raise HostUnavailable(answer["failed"])
        state: dict[str, Any] = answer["state"]
        # a slot of its own: a call without new storage leaves the journalled one as it is
        storage = {STORAGE: state.pop("storage")} if "storage" in state else {}
        attached = await _received(answer.get("attached", {}), context)
        return ToolOutcome(content=text(**answer["result"], **attached), state={SLOT: state, **storage})


async def _received(attached: Fields, context: CallContext) -> Fields:
    """The screenshot of an answer, and its files, which are written into the sandbox."""
    found = {name: attached[name] for name in ("screenshot",) if name in attached}
    if files := attached.get("files"):
        names: set[str] = set()
        found[DOWNLOADS] = []
        for number, file in enumerate(files):
            # from the end, for its extension; without leading dots, it's neither hidden nor a path
            name = NOT_IN_NAMES.sub("_", file["name"])[-MOST_NAME_CHARS:].lstrip(".") or "download"
            # two of one name are two files
            name = name if name not in names else f"{number}-{name}"
            names.add(name)
            found[DOWNLOADS].append(await _written(file, name, number, context))
    return found


async def _written(file: Fields, name: str, number: int, context: CallContext) -> Fields:
    """Write a download into the sandbox; another attempt at the call finds it written."""
    content = base64.b64decode(file["content"])
    path = f"{context.settings.terminal_cwd}/{DOWNLOADS}/{name}"
    try:
        written = await context.sandbox.write_file(path, content, key=context.job_key(DOWNLOADS, number))
    except FileRefused as refused:
        return {"name": name, "error": str(refused)}
    return {"path": written, "bytes": len(content)}


async def _served(command: str, request: bytes, context: CallContext, number: int) -> bytes:
    """The answer of the sandbox's `command` to a request: bytes as it prints them."""
    sandbox = context.sandbox
    job = Job(
        key=context.job_key("site", number),
        script=command,
        timeout=SITE_SECONDS,
        max_output=MOST_SITE_BYTES,
        stdin=request,
    )
    status = await shell.finish(job, context)
    return await sandbox.output(job.key, 0, status.output_size) or FAILED_SITE
