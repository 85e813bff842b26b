"""Hosts as network namespaces, each behind a link of its own to the bridge at which servers listen."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from chaos.cluster.programs import run


@dataclass(frozen=True)
class Network:
    """Names and addresses go by this process's id, so that several clusters can be on one machine."""

    name: str
    subnet: str

    @property
    def address(self) -> str:
        """Address of the servers, the same for every host."""
        return f"{self.subnet}.1"

    def namespace(self, host: int) -> str:
        return f"{self.name}-{host}"

    def address_of(self, host: int) -> str:
        return f"{self.subnet}.{10 + host}"

    async def cut(self, host: int) -> None:
        """Packets are lost, as by a pulled cable: nobody is told."""
        await run("ip", "link", "set", self.namespace(host), "down")

    async def heal(self, host: int) -> None:
        await run("ip", "link", "set", self.namespace(host), "up")


@asynccontextmanager
async def network_of(hosts: int) -> AsyncIterator[Network]:
    network = Network(f"cl{os.getpid()}", f"10.77.{os.getpid() % 250}")
    async with AsyncExitStack() as stack:
        bridge = network.name
        await run("ip", "link", "add", bridge, "type", "bridge")
        stack.push_async_callback(run, "ip", "link", "del", bridge)
        await run("ip", "addr", "add", f"{network.address}/24", "dev", bridge)
        await run("ip", "link", "set", bridge, "up")
        for host in range(1, hosts + 1):
            name = network.namespace(host)
            await run("ip", "netns", "add", name)
            stack.push_async_callback(run, "ip", "netns", "del", name)
            await run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            # by itself: the kernel deletes a namespace's links some time after the namespace
            stack.push_async_callback(run, "ip", "link", "del", name)
            await run("ip", "link", "set", name, "master", bridge)
            await run("ip", "link", "set", name, "up")
            await run("ip", "-n", name, "link", "set", "lo", "up")
            await run("ip", "-n", name, "addr", "add", f"{network.address_of(host)}/24", "dev", "eth0")
            await run("ip", "-n", name, "link", "set", "eth0", "up")
        yield network
