"""Temporal's production server on PostgreSQL: one of several processes, each with all of its four services."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

from temporalio.client import Client

from chaos.cluster.postgres import USER, Postgres
from chaos.cluster.programs import Programs
from clotho.processes.child import ChildProcess
from clotho.processes.ports import HOST, port_is_free

SHARDS = 4
SERVICES = ("frontend", "history", "matching", "worker")
READY_SECONDS = 120.0
LOW_PORTS = (10_000, 32_000)
HEAP_GROWTH = "GOGC=400"


def _low_port() -> int:
    """A free port that fits into a column of Temporal's, a smallint; the kernel gives others to clients."""
    while not port_is_free(port := random.randrange(*LOW_PORTS)):
        pass
    return port


class ClusteredTemporal:
    """A process of the cluster that shares `postgres`."""

    def __init__(self, programs: Programs, folder: Path, postgres: Postgres) -> None:
        self._folder = folder
        self._postgres = postgres
        self._ports = {service: (_low_port(), _low_port()) for service in SERVICES}
        command = [str(programs.temporal_server), "--root", str(folder), "--config", "config"]
        command += ["--env", "development", "--zone", "", "--allow-no-auth", "start"]
        self.process = ChildProcess(["env", HEAP_GROWTH, *command], folder / "log")

    @property
    def port(self) -> int:
        return self._ports["frontend"][0]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    async def start(self) -> None:
        """Return when it answers."""
        config = self._folder / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "dynamic.yaml").write_text("{}\n")
        (config / "development.yaml").write_text(json.dumps(self._config(config / "dynamic.yaml")))
        await self.process.start()
        async with asyncio.timeout(READY_SECONDS):
            while True:
                try:
                    client = await Client.connect(self.address)
                    if await client.service_client.check_health():
                        return
                except RuntimeError:
                    if not self.process.running:
                        raise RuntimeError(f"Temporal: {self.process.last_words}") from None
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        await self.process.stop()

    async def kill(self) -> None:
        await self.process.kill()

    def _config(self, dynamic: Path) -> dict[str, Any]:
        """The server reads YAML, of which JSON is a part."""
        stores = {name: {"sql": self._database(name)} for name in ("temporal", "visibility")}
        return {
            "log": {"stdout": True, "level": "warn"},
            "persistence": {
                "defaultStore": "temporal",
                "visibilityStore": "visibility",
                "numHistoryShards": SHARDS,
                "datastores": stores,
            },
            "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": HOST}},
            "services": {
                service: {"rpc": {"grpcPort": serving, "membershipPort": gossiping, "bindOnIP": HOST}}
                for service, (serving, gossiping) in self._ports.items()
            },
            "clusterMetadata": {
                "enableGlobalNamespace": False,
                "failoverVersionIncrement": 10,
                "masterClusterName": "active",
                "currentClusterName": "active",
                "clusterInformation": {
                    "active": {
                        "enabled": True,
                        "initialFailoverVersion": 1,
                        "rpcName": "frontend",
                        "rpcAddress": self.address,
                    }
                },
            },
            "dcRedirectionPolicy": {"policy": "noop"},
            "archival": {"history": {"state": "disabled"}, "visibility": {"state": "disabled"}},
            "publicClient": {"hostPort": self.address},
            "dynamicConfigClient": {"filepath": str(dynamic), "pollInterval": "60s"},
        }

    def _database(self, name: str) -> dict[str, Any]:
        return {
            "pluginName": "postgres12",
            "databaseName": name,
            "connectAddr": f"{HOST}:{self._postgres.port}",
            "connectProtocol": "tcp",
            "user": USER,
            "password": "none",
            "maxConns": 20,
            "maxIdleConns": 20,
            "maxConnLifetime": "1h",
        }
