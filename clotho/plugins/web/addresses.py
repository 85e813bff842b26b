"""Addresses of the web that pages may be read from: public ones, and none of the worker's own network."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host name; raises OSError for none."""

TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""NAT64: addresses that end in an IPv4 address."""
OF_CLOUDS = (ipaddress.ip_network("168.63.129.16/32"), ipaddress.ip_network("192.0.0.0/24"))
"""Addresses of clouds' own services, which look like public ones: Azure's and Oracle's."""


async def resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public(text: str) -> bool:
    """Whether an address is one of the internet's: not private, loopback, link-local, multicast or reserved."""
    if "%" in text:  # a scope: link-local
        return False
    return all(map(_is_public, _meant(ipaddress.ip_address(text))))


def _is_public(address: Address) -> bool:
    if any(address in network for network in OF_CLOUDS):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    # is_global is True of multicast addresses, and of some reserved ones
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _meant(address: Address) -> list[Address]:
    """The address, or those that are wrapped in it: a tunnel or a translator leads to them."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address in TRANSLATED:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    return [address, *(address.teredo or ())]


def has_route(text: str) -> bool:
    """Whether this host knows a way to the address; nothing is sent."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        # connecting a datagram socket looks for a route, and does nothing else
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((text, 443))
    except OSError:
        return False
    return True
