"""Reads the text of a document in a process of its own, with bounds on its time and memory."""

import asyncio
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from clotho.errors import HostUnavailable
from clotho.plugins.web.fetching import Document

PROGRAM = Path(__file__).with_name("reader.py")
READY = b"ready\n"
SECONDS = 60.0
LIBRARIES = ("trafilatura", "pypdf")

Page = dict[str, str | None]
"""`title`, `content` and `error`."""

_threads = ThreadPoolExecutor(4, thread_name_prefix="pages")


def missing() -> str | None:
    """The requirement that isn't installed, or None."""
    absent = [name for name in LIBRARIES if find_spec(name) is None]
    return f"{' and '.join(absent)} not installed: pip install 'clotho-rollouts[web]'" if absent else None


async def read(document: Document, most_chars: int) -> Page:
    """The document's title and text, or why it has none: it is beyond the parsers, or beyond the bounds.

    Raises HostUnavailable where the process didn't come to the document, or was killed by another.
    """
    loop = asyncio.get_running_loop()
    output = await loop.run_in_executor(_threads, _output, document, most_chars)
    try:
        page: Page = json.loads(output)
    except ValueError:  # it was ended at a bound
        return {"title": "", "content": "", "error": "The page is too large or too intricate to be read"}
    return page


def _output(document: Document, most_chars: int) -> bytes:
    arguments = (document.media_type[:200], document.charset or "", str(most_chars))
    command = (sys.executable, "-I", "-X", "utf8", str(PROGRAM), *arguments)
    try:
        done: subprocess.CompletedProcess[bytes] | subprocess.TimeoutExpired = subprocess.run(
            command,
            input=document.content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        done = error
    except OSError as error:
        raise HostUnavailable(f"no process to read a page in: {error.strerror}") from error
    _, ready, page = (done.stdout or b"").partition(READY)
    # its own bounds end it by SIGXCPU or a MemoryError: SIGKILL is the host's, mostly for its memory
    killed = isinstance(done, subprocess.CompletedProcess) and done.returncode == -signal.SIGKILL
    if not ready or killed:
        raise HostUnavailable("the process that reads a page was killed, or never came to it")
    return page
