"""Files that pages have downloaded: read where Chromium has put them, in bounds, or refused."""

import asyncio
import base64
import os
import stat
from pathlib import Path
from typing import Any

from playwright.async_api import Download, Error

from clotho.plugins.browser.process.session import MOST_MESSAGE_CHARS, Session

REFUSED = "Downloads are refused"

Fields = dict[str, Any]


class NotKept(Exception):
    """A download that isn't kept; the message says why."""


async def downloaded(session: Session) -> Fields:
    """Attach downloads that are kept to the answer; returns a warning of the others for the model."""
    begun, session.downloads = session.downloads, []
    if not begun:
        return {}
    if not session.downloads_bytes:
        return {"warning": f"{REFUSED}: {', '.join(map(_name, begun))}"[:MOST_MESSAGE_CHARS]}
    files: list[Fields] = []
    faults: list[str] = []
    left = session.downloads_bytes
    for each in begun:
        try:
            content = await _content(each, left, session)
        except NotKept as fault:
            faults.append(f"{_name(each)} was not kept: {fault}")
        else:
            left -= len(content)
            files.append({"name": _name(each), "content": base64.b64encode(content).decode()})
        await _forgotten(each)
    if files:
        session.attached["files"] = files
    return {"warning": "; ".join(faults)[:MOST_MESSAGE_CHARS]} if faults else {}


def _name(download: Download) -> str:
    return download.suggested_filename[:MOST_MESSAGE_CHARS]


async def _content(download: Download, most: int, session: Session) -> bytes:
    try:
        async with asyncio.timeout(session.seconds):
            path = await download.path()
    except TimeoutError:
        raise NotKept(f"it took longer than {session.seconds:g} s") from None
    except Error:
        raise NotKept("it failed") from None
    return await asyncio.to_thread(_read, path, session.folder, most)


def _read(path: Path, folder: Path, most: int) -> bytes:
    """The content of a regular file below `folder`; the browser, which writes there, may have put a link."""
    try:
        # O_NONBLOCK: opening a FIFO would wait for its writer
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise NotKept("it can't be read") from None
    with os.fdopen(file, "rb") as opened:
        # O_NOFOLLOW looks at the last part alone, and a folder above may be a link, too
        where = Path(os.readlink(f"/proc/self/fd/{file}"))
        if not stat.S_ISREG(os.fstat(file).st_mode) or not where.is_relative_to(folder.resolve()):
            raise NotKept("it can't be read")
        content = opened.read(most + 1)
    if len(content) > most:
        raise NotKept("the files of a call would be larger than this run allows")
    return content


async def _forgotten(download: Download) -> None:
    """Have Chromium cancel a download that still runs, and delete its file."""
    try:
        async with asyncio.timeout(1.0):
            await download.cancel()
            await download.delete()
    except (Error, TimeoutError):
        pass  # its context deletes it at its end
