"""Access checks: no web page of another origin, no foreign host name, and the token if there is one."""

import base64
import hmac
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

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

    def check(self, headers: Headers) -> None:
        self._check_host(headers.get("host", ""))
        self._check_page(headers)
        self._check_token(headers.get("authorization", ""))

    def allows_page(self, headers: Headers) -> bool:
        """Whether it comes from a page of an origin that was named."""
        return headers.get("origin") in self.origins

    def _check_host(self, host: str) -> None:
        name = _name_in(host)
        known = {"localhost", platform.node().lower(), *map(str.lower, self.hosts)}
        if not (_is_address(name) or name in known or ANY in known):
            raise Refused(403, f"{host[:200]!r} is no known name of this server; see --allow-host")

    def _check_page(self, headers: Headers) -> None:
        if self.allows_page(headers):
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise Refused(403, "a web page of another origin asks")
        if site not in (None, "same-origin", "none"):
            raise Refused(403, "a web page of another site asks")
        # Browsers leave Sec-Fetch-Site out where the server is neither local nor encrypted, and Origin in a GET.
        if origin is None and site is None and headers.get("user-agent", "").startswith("Mozilla/"):
            raise Refused(403, "a browser asks without saying for which page")

    def _check_token(self, authorization: str) -> None:
        if self.token is None:
            return
        scheme, _, credentials = authorization.partition(" ")
        given = _password(credentials) if scheme.lower() == "basic" else credentials.strip()
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refused(401, "the token is missing or wrong", {"www-authenticate": "Bearer"})


def _name_in(host: str) -> str:
    """A Host header without its port; brackets of IPv6 removed."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
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
