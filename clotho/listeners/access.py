"""Access checks: no web page of another origin, no foreign host name, and the token if there is one."""

import base64
import hashlib
import hmac
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from clotho.listeners.refused import Refused

ANY = "*"


@dataclass(frozen=True)
class Access:
    """Checks of a request's headers: host, origin and token. Raises Refused.

    Addresses, localhost and this machine's name are known hosts always. A page whose own name was made to resolve
    to this server (DNS rebinding) asks under that name.
    """

    hosts: Sequence[str] = ()
    """Further names of this server; `*` stands for all."""
    origins: Sequence[str] = ()
    """Origins of web pages that may ask, such as `https://dashboard.example`."""
    token: str | None = None
    """The token that requests need, as `Authorization: Bearer TOKEN` or as the password of basic authentication."""

    def check(self, headers: Headers, in_address: str | None = None) -> None:
        """Check a request; `in_address` is the token in its address, if there is one. Raises Refused."""
        self._check_host(headers.get("host", ""))
        self._check_page(headers)
        if in_address is None or not self.is_token(in_address):
            self._check_token(headers)

    def allows_page(self, headers: Headers) -> bool:
        """Whether the request comes from a page of one of `origins`."""
        return headers.get("origin") in self.origins

    def is_token(self, given: str) -> bool:
        """Whether it is the token, or there is none."""
        # as bytes: compare_digest raises for text that isn't ASCII
        return self.token is None or hmac.compare_digest(given.encode(), self.token.encode())

    def _check_host(self, host: str) -> None:
        name = _name_in(host)
        known = {"localhost", platform.node().lower(), *map(str.lower, self.hosts)}
        if not (_is_address(name) or name in known or ANY in known):
            raise Refused(403, f"{host[:200]!r} is no known name of this server; see --allow-host")

    def _check_page(self, headers: Headers) -> None:
        if self.allows_page(headers):
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and _host_of(origin) != headers.get("host", "").lower():
            raise Refused(403, "a web page of another origin asks")
        if site not in (None, "same-origin", "none"):
            raise Refused(403, "a web page of another site asks")
        # Browsers leave Sec-Fetch-Site out where the server is neither local nor encrypted, and Origin in a GET.
        if origin is None and site is None and headers.get("user-agent", "").startswith("Mozilla/"):
            raise Refused(403, "a browser asks without saying for which page")

    def _check_token(self, headers: Headers) -> None:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        given = _password(credentials) if scheme.lower() == "basic" else credentials.strip()
        if not self.is_token(given):
            detail = "the token is missing or wrong: the server told it at its start"
            raise Refused(401, detail, {"www-authenticate": "Bearer"})


@dataclass(frozen=True)
class PageAccess(Access):
    """Checks of requests to a server of web pages: links of other sites may lead to them.

    A browser shows the token once, in the address, and a cookie from then on.
    """

    def check_page(self, method: str, headers: Headers) -> None:
        """Check a request of `method`. Raises Refused."""
        self._check_host(headers.get("host", ""))
        reading = method in ("GET", "HEAD")
        # browsers send Origin with every request that may change something
        if not reading and headers.get("origin") is None:
            raise Refused(403, "only pages of this server may do this")
        # a link hands nothing to the page that it is on; a frame could be covered by that page
        followed = reading and headers.get("sec-fetch-mode") == "navigate"
        if not (followed and headers.get("sec-fetch-dest") == "document"):
            self._check_page(headers)
        if not self._has_cookie(headers.get("cookie", "")):
            self._check_token(headers)

    def cookie(self) -> str:
        """The cookie of browsers that have shown the token; nobody can compute the token from it.

        A browser sends cookies to all ports of a machine: the cookie's name tells servers apart.
        """
        name, value = self._cookie()
        return f"{name}={value}; Path=/; HttpOnly; SameSite=Lax"

    def _cookie(self) -> tuple[str, str]:
        key = (self.token or "").encode()
        name, value = (hmac.digest(key, use, hashlib.sha256).hex() for use in (b"name", b"value"))
        return f"clotho-{name[:16]}", value

    def _has_cookie(self, cookies: str) -> bool:
        name, value = self._cookie()
        return hmac.compare_digest(cookie_parser(cookies).get(name, "").encode(), value.encode())


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name_in(host: str) -> str:
    """A Host header without its port; brackets of IPv6 removed."""
    if host.startswith("["):
        name, closed, _ = host[1:].partition("]")
        return name if closed else ""
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
