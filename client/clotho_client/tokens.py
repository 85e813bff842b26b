"""The token that requests show to Clotho's HTTP servers, and where it is found."""

import os
import platform
from collections.abc import Generator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote

import httpx

from clotho_client.errors import TokenUnusable

TOKEN_VARIABLE = "CLOTHO_TOKEN"
LONGEST_TOKEN = 4_096


def token_file(port: int) -> Path:
    """The file in which servers at `port` of this machine keep their token, one for each user."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "clotho" / "tokens" / str(port)


def read_token(path: Path) -> str | None:
    """The token in a file; None if there is none. Raises TokenUnusable for a file that others can read or own."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise TokenUnusable(
                f"{path} holds a token that others may know: remove it, and start the server again"
            )
        return file.read(LONGEST_TOKEN).decode("ascii", "replace").strip() or None


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
        shown = self._token or request.url.password or self.find(request.url)
        answer = yield _showing(request, shown)
        # A server makes its token before it listens: this request may have been on its way between the two.
        if (
            answer.status_code == httpx.codes.UNAUTHORIZED
            and shown is None
            and (found := self.find(request.url))
        ):
            yield _showing(request, found)

    def find(self, url: httpx.URL) -> str | None:
        """The token of CLOTHO_TOKEN, or of the port's file. Raises TokenUnusable."""
        if TOKEN_VARIABLE in os.environ:
            shared = os.environ[TOKEN_VARIABLE].strip()
            if not (shared and shared.isascii() and shared.isprintable()):
                raise TokenUnusable(f"environment variable {TOKEN_VARIABLE} must hold the server's token")
            return shared
        port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
        return read_token(token_file(port)) if is_this_machine(url.host) else None


def _showing(request: httpx.Request, token: str | None) -> httpx.Request:
    if token is not None:
        request.headers["authorization"] = f"Bearer {token}"
    return request


def is_this_machine(host: str) -> bool:
    """Whether connections to `host` end on this machine, as far as its name says."""
    try:
        address = ip_address(unquote(host).strip("[]"))
    except ValueError:
        return host.lower() in ("localhost", platform.node().lower())
    return address.is_loopback or address.is_unspecified
