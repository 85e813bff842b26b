"""Pages for the browser, served on this machine: forms, scripts, frames, and what no page should be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HUGE_BYTES = 50_000_000
HOME = """<title>Looms</title><h1>Looms</h1><a href="/form">Order</a> <button onclick="
document.querySelector('#said').textContent = 'clicked'">Press me</button><p id=said></p>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" alt="a thread"><script>console.log('ready')</script>"""
FORM = """<title>Order</title><form action="/ordered"><label>Name <input name=name></label>
<label>Size <select name=size><option>small<option>large</select></label><button>Send</button></form>"""
DYNAMIC = """<title>Dynamic</title><button onclick="setTimeout(() => fetch('/late').then(r => r.text()).then(
text => { document.querySelector('main').textContent = text; localStorage.seen = text }), 30)
">Load</button><main></main>
<script>document.querySelector('main').textContent = 'kept ' + localStorage.seen + ' ' + document.cookie;
document.cookie = 'visits=1'</script>"""
FRAMES = """<title>Frames</title><h1>Outer</h1><iframe src="/inner"></iframe>"""
INNER = """<button onclick="this.textContent = 'Inner pressed'">Inner</button>"""
DIALOGS = """<title>Dialogs</title><button onclick="
document.querySelector('p').textContent = 'got ' + prompt('Which thread?', 'red')">Ask</button><p></p>"""
DEAD_END = """<title>Dead end</title><a href="/stuck">x</a><img src="http://169.254.169.254/latest/meta-data/">
<script>fetch('http://10.0.0.1/').then(r => r.text()).then(t => document.title = t)</script>"""
LONG = "<title>Long</title>" + "".join(f"<p>paragraph {number} of many</p>" for number in range(2000))
PAGES = {
    **{"/": HOME, "/form": FORM, "/dynamic": DYNAMIC, "/frames": FRAMES, "/inner": INNER},
    **{"/once": HOME, "/dialogs": DIALOGS, "/subresources": DEAD_END, "/long": LONG, "/late": "loaded late"},
    "/files": '<title>Files</title><a href="file:///etc/passwd">passwd</a><a href="/download">get</a>',
}


class Site:
    """The server, and the requests that it got."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.port = 0
        self.stuck = asyncio.Event()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line, *_ = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            target = line.split(" ")[1]
            self.requests.append(target)
            await self._send(target, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the browser went away
        finally:
            writer.close()

    async def _send(self, target: str, writer: asyncio.StreamWriter) -> None:
        path, _, query = target.partition("?")
        if path == "/never":
            await self.stuck.wait()
        elif path == "/once" and self.requests.count(target) > 1:
            pass  # the connection ends without an answer
        elif path == "/away":
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data/\r\n\r\n")
        elif path == "/download":
            head = "Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=a.bin"
            bits = "bits" * int(query or 1)
            writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\nContent-Length: {len(bits)}\r\n\r\n{bits}".encode())
        elif path == "/huge":
            writer.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {HUGE_BYTES}\r\n\r\n".encode()
            )
            for _ in range(HUGE_BYTES // 100_000):
                writer.write(b"<p>" + b"x" * 99_997)
                await writer.drain()
        else:
            page = (
                f"<title>Thanks</title><p>Ordered: {query}</p>" if path == "/ordered" else PAGES.get(path, "")
            )
            body = page.encode()
            head = f"HTTP/1.1 {200 if page else 404} OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}"
            writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)


@asynccontextmanager
async def served() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        site.stuck.set()
        server.close()
