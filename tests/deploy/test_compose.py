"""The compose file: as podman-compose reads it, and what it tells Clotho, the S3 server and Prometheus."""

import asyncio
import re
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
import yaml

from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.worker_settings import MetricsSettings, WorkerSettings
from tests.cli.command import run
from tests.containers import s3_server
from tests.deploy.clotho_part import check_command, check_variables
from tests.docs.test_docs_refer_to_things_that_exist import programs
from tests.monitoring.exported import NAME
from tests.s3_server import S3Server
from tests.support import PATIENCE_SECONDS, eventually

__all__ = ["programs", "s3_server"]

FOLDER = Path("deploy/compose").absolute()
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DEFAULTS = dict(
    line.split("=", 1) for line in (FOLDER / ".env").read_text().splitlines() if line[:1] not in ("", "#")
)
OURS = "${CLOTHO_IMAGE}"


def filled(text: str) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: DEFAULTS[found[1]], text)


async def test_podman_compose_takes_the_file() -> None:
    if find_spec("podman_compose") is None:
        pytest.skip("podman-compose isn't installed")
    shown = await run(sys.executable, "-m", "podman_compose", "config", folder=FOLDER)
    assert shown.status == 0, shown.error
    config = yaml.safe_load(shown.output)
    assert config["services"]["worker"]["image"] == DEFAULTS["CLOTHO_IMAGE"]
    assert "${" not in shown.output.replace("${source}", "")


def test_every_variable_has_a_default_and_every_file_is_there() -> None:
    text = (FOLDER / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", text)) == set(DEFAULTS)
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = filled(volume).split(":")[0]
            assert source in COMPOSE["volumes"] or source.startswith("/") or (FOLDER / source).exists(), name
        assert set(service.get("depends_on", ())) <= set(SERVICES)


def test_what_it_tells_clotho_is_clothos(programs: dict[str, Any]) -> None:
    ours = {name: service for name, service in SERVICES.items() if service["image"] == OURS}
    assert set(ours) == {"bucket", "worker", "clotho"}
    for service in ours.values():
        check_variables(service["environment"])
        if "entrypoint" not in service:
            check_command(programs, service["command"])
    worker = SERVICES["worker"]
    drain = float(worker["environment"]["CLOTHO_WORKER__DRAIN_SECONDS"])
    assert drain == WorkerSettings().drain_seconds
    assert float(worker["stop_grace_period"].removesuffix("s")) >= drain + 30


def test_prometheus_asks_each_process_of_a_worker() -> None:
    scraped = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    places = scraped["scrape_configs"][0]["dns_sd_configs"]
    processes = int(SERVICES["worker"]["command"][-1])
    assert [place["port"] for place in places] == [MetricsSettings().port + n for n in range(processes)]
    assert {name for place in places for name in place["names"]} == {"worker"}


def test_alarms_ask_for_metrics_that_there_are() -> None:
    alarms = yaml.safe_load((FOLDER / "alarms.yaml").read_text())
    documented = Path("docs/monitoring.md").read_text()
    asked = {name for rule in alarms["groups"][0]["rules"] for name in NAME.findall(rule["expr"])}
    assert len(asked) >= 5
    assert [name for name in asked if name.removesuffix("_bucket") not in documented] == []


async def test_the_bucket_is_made_once(s3_server: S3Server) -> None:
    store = f"s3://bucket-{uuid.uuid4().hex[:12]}/compose"
    variables = {
        "CLOTHO_STORE": store,
        "CLOTHO_PLUGINS__S3__ENDPOINT": s3_server.endpoint,
        "AWS_ACCESS_KEY_ID": s3_server.access_key,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_key,
        "AWS_REGION": "us-east-1",
    }
    for _ in range(2):
        made = await run(sys.executable, FOLDER / "bucket.py", environment=variables)
        assert made.status == 0, made.error
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
    )
    names = [bucket["Name"] for bucket in (await asyncio.to_thread(client.list_buckets))["Buckets"]]
    assert names.count(store.split("/")[2]) == 1


async def test_the_s3_server_takes_its_command_line(s3_server: S3Server, tmp_path: Path) -> None:
    service, port, objects = SERVICES["s3"], free_port(), tmp_path / "objects"
    objects.mkdir()
    command = [str(objects) if word == "/data" else word for word in service["command"]]
    command = [f"127.0.0.1:{port}" if word == ":7070" else word for word in command]
    assert command != service["command"]
    assignments = [f"{name}={filled(value)}" for name, value in service["environment"].items()]
    server = ChildProcess(["env", *assignments, str(s3_server.binary), *command], tmp_path / "s3.log")
    await server.start()
    try:
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:

            async def answers() -> bool:
                assert server.running, server.output
                try:
                    return (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(answers, "the S3 server answers")
    finally:
        await server.stop()
