"""Sends notices of runs: to a command and to a web hook."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping

import httpx

from clotho.config import Settings, environment_without, secret
from clotho.errors import InvalidInput, Unavailable
from clotho.plugins.notices.settings import NotifySettings
from clotho.rollouts.notice import Notice

SECONDS = 60.0
"""Time that the command or the request may take."""
TRIED_AGAIN = (408, 425, 429)
"""Statuses from 400 to 499 that are no refusal for good."""


async def tell_command(notice: Notice, settings: Settings) -> None:
    """Run the command of the settings, if there is one, without the variables that hold models' keys.

    A notice that is given again is sent again.
    """
    if command := settings.of(NotifySettings).command:
        await run_command(command, body_of(notice), environment_without(settings.worker.model_keys))


async def tell_web_hook(notice: Notice, settings: Settings) -> None:
    """Send the notice to the web hook of the settings, if there is one."""
    asked = settings.of(NotifySettings)
    if asked.webhook_variable is None:
        return
    headers = {"content-type": "application/json"}
    if asked.webhook_token_variable is not None:
        token = secret(asked.webhook_token_variable, "the token of the web hook")
        headers["authorization"] = f"Bearer {token}"
    await post(web_hook(asked.webhook_variable), body_of(notice), headers)


def web_hook(variable: str) -> str:
    """The web hook's URL. Raises InvalidInput, which doesn't repeat it, where the variable holds none."""
    url = secret(variable, "the URL of the web hook")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput(f"the web hook's variable {variable} holds no URL of http or https")
    return url


def body_of(notice: Notice) -> bytes:
    """The notice in JSON, with a sentence under the name that chat programs show."""
    return json.dumps({**notice.model_dump(mode="json"), "text": notice.text}).encode()


async def run_command(command: tuple[str, ...], body: bytes, environment: Mapping[str, str]) -> None:
    """Run `command` with `body` as its standard input; what it prints goes to this process's standard error."""
    try:
        # a session of its own: killpg below ends what the command has started, too
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=2, env=environment, start_new_session=True
        )
    except OSError as error:
        raise InvalidInput(f"the notification's command {command[0]!r}: {error.strerror}") from error
    try:
        async with asyncio.timeout(SECONDS):
            await process.communicate(body)
    except TimeoutError:
        raise Unavailable(f"the notification's command took more than {SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise Unavailable(f"the notification's command ended with status {process.returncode}")


async def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send `body` to the web hook, without following redirects; what it answers beside the status isn't read.

    Errors don't repeat the URL: it may be a secret.
    """
    try:
        async with (
            # httpx's own timeouts are for each read: a server that drips would never exceed one
            asyncio.timeout(SECONDS),
            httpx.AsyncClient(timeout=None) as client,
            client.stream("POST", url, content=body, headers=headers) as answer,
        ):
            status = answer.status_code
    except TimeoutError:
        raise Unavailable(f"the web hook doesn't answer within {SECONDS:g} s") from None
    except httpx.HTTPError as error:
        # from None: the text of httpx's error, and a traceback with it, may have the URL
        raise Unavailable(f"the web hook can't be reached: {type(error).__name__}") from None
    if 200 <= status <= 299:
        return
    said = f"the web hook answers {status}"
    if status >= 500 or status in TRIED_AGAIN:
        raise Unavailable(said)
    raise InvalidInput(said)
