"""The run's network policy for pages: which hosts they may reach, and at which of their addresses."""

import ipaddress
from collections.abc import Sequence

from clotho.plugins.web.addresses import Resolve, is_public, resolve


class Refused(Exception):
    """A request that the run doesn't allow; the message says why."""


class NetworkPolicy:
    """Decides on each connection; the address that it returns is the one to connect to."""

    def __init__(self, allow: Sequence[str], resolve: Resolve = resolve) -> None:
        self._allow = frozenset(allow)
        self._resolve = resolve

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host to the addresses that the run allows.

        Raises Refused for a host or an address that isn't allowed, OSError for a host without addresses.
        """
        host = host.lower().rstrip(".")
        named = not self._allow.isdisjoint((host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"))
        if not named and not self._matches(host, port):
            raise Refused(f"{host}:{port} is not among the addresses that this run allows")
        literal = _is_address(host)
        found = [host] if literal else await self._resolve(host, port)
        # Whoever owns another name decides what it resolves to.
        allowed = (
            found
            if named and (literal or host == "localhost")
            else [address for address in found if is_public(address)]
        )
        if not allowed:
            raise Refused(f"{host}:{port} is at a private, loopback or link-local address")
        return allowed

    def _matches(self, host: str, port: int) -> bool:
        parts = [".".join(host.split(".")[start:]) for start in range(1, host.count(".") + 1)]
        wide = ("*", *(f"*.{part}" for part in parts))
        return any(not self._allow.isdisjoint((each, f"{each}:{port}")) for each in wide)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
