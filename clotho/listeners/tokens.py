"""Tokens of this machine's HTTP servers: one for each port, in a file that only its user can read."""

import os
import platform
import secrets
import tempfile
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote

import httpx

from clotho.config import TOKEN_VARIABLE, cache_folder, shared_token
from clotho.errors import InvalidInput

USER = "clotho"
"""The user of URLs that carry a token as their password: clients leave out a password without a user."""
LONGEST_TOKEN = 4_096


@dataclass(frozen=True)
class Token:
    """A token that requests to a server need, and where its clients find it."""

    text: str
    source: Path | str
    """Its file, or the name of its environment variable."""

    @property
    def shown(self) -> str:
        """The token for a terminal; one that came in a variable is named by it, as a shell does."""
        return self.text if isinstance(self.source, Path) else f"${self.source}"

    def in_url(self, url: str) -> str:
        """`url` with the token as its password."""
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{USER}:{self.shown}@{rest}"


def token_file(port: int) -> Path:
    return cache_folder() / "tokens" / str(port)


def token_of_port(port: int) -> Token:
    """The token of a server at `port`: CLOTHO_TOKEN's, else the file's, which is made if there is none.

    A file outlives its server, so that clients go on with the next one at the same port. Raises InvalidInput.
    """
    if (shared := shared_token()) is not None:
        return Token(shared, TOKEN_VARIABLE)
    path = token_file(port)
    try:
        if (text := read_token(path)) is None:
            _create(path, secrets.token_urlsafe(24))
            text = read_token(path)
    except OSError as error:
        raise InvalidInput(
            f"the token can't be kept in {path} ({error.strerror}): name a variable with --token-variable"
        ) from error
    if text is None:
        raise InvalidInput(f"{path} holds no token: remove it, and start the server again")
    return Token(text, path)


def read_token(path: Path) -> str | None:
    """The token in a file; None if there is none. Raises InvalidInput for a file that others can read or own."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise InvalidInput(
                f"{path} holds a token that others may know: remove it, and start the server again"
            )
        return file.read(LONGEST_TOKEN).decode("ascii", "replace").strip() or None


def _create(path: Path, text: str) -> None:
    """Write the file, unless it is there: of two processes that make a port's token, both use the first one's."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Written aside: a server that is killed meanwhile leaves no token that is cut off.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


class TokenAuth(httpx.Auth):
    """Shows a server's token with each request, looked up anew: it may be made after its client.

    It is the one given, the URL's password, CLOTHO_TOKEN, or, for servers of this machine, that of the port's file.
    """

    def __init__(self, token: str | None = None) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if "authorization" in request.headers:
            yield request
            return
        shown = self._token or request.url.password or _found(request.url)
        answer = yield _showing(request, shown)
        # A server makes its token before it listens: this request may have been on its way between the two.
        if (
            answer.status_code == httpx.codes.UNAUTHORIZED
            and shown is None
            and (found := _found(request.url))
        ):
            yield _showing(request, found)


def _showing(request: httpx.Request, token: str | None) -> httpx.Request:
    if token is not None:
        request.headers["authorization"] = f"Bearer {token}"
    return request


def _found(url: httpx.URL) -> str | None:
    if (shared := shared_token()) is not None:
        return shared
    port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
    return read_token(token_file(port)) if is_this_machine(url.host) else None


def is_this_machine(host: str) -> bool:
    """Whether connections to `host` end on this machine, as far as its name says."""
    try:
        address = ip_address(unquote(host).strip("[]"))
    except ValueError:
        return host.lower() in ("localhost", platform.node().lower())
    return address.is_loopback or address.is_unspecified
