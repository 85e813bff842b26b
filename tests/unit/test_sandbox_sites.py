"""Requests of pages to sites in the sandbox have names of their own, also in a browser that was started again."""

import asyncio

from clotho.plugins.browser.process.connection import Connection, SandboxSites


class Asked(Connection):
    """A worker that answers at once, and keeps the numbers it was asked under."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def write(self, message: dict[str, object]) -> None:
        assert isinstance(message["site"], int)
        self.numbers.append(message["site"])
        self.asked.set_result(None)

    async def read(self) -> dict[str, object] | None:
        self.asked = asyncio.get_running_loop().create_future()
        await self.asked
        return {"site": self.numbers[-1], "response": "b2s="}


async def ask(worker: Asked) -> None:
    sites = SandboxSites()
    serving = asyncio.ensure_future(sites.serve(worker))
    await asyncio.sleep(0)
    assert await sites.ask("shop", b"GET / HTTP/1.1\r\n\r\n") == b"ok"
    serving.cancel()


async def test_a_browser_that_was_started_again_asks_anew() -> None:
    worker = Asked()
    await ask(worker)
    await ask(worker)
    assert len(set(worker.numbers)) == 2
