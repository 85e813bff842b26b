"""The endpoint at which Prometheus reads a process's metrics: Temporal's SDK serves its own and Clotho's there."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from clotho.monitoring.metrics import BUCKETS
from clotho.temporal.sdk_logs import sdk_logging
from clotho.worker_settings import MetricsSettings

PORTS = 32
"""Ports that are tried, from the configured one on: each process of a machine needs one."""

log = logging.getLogger("clotho")


class Served(NamedTuple):
    """The endpoint, which lives as long as `runtime`."""

    runtime: Runtime
    address: str | None
    refusal: str = ""
    """Why there is no address."""

    def log(self) -> None:
        if self.address is not None:
            log.info("metrics at http://%s/metrics", self.address)
        else:
            log.log(logging.WARNING if self.refusal else logging.INFO, "no metrics%s", self.refusal)


def open_runtime(settings: MetricsSettings, labels: Mapping[str, str]) -> Served:
    """The SDK's runtime with an endpoint, whose metrics all have `labels`; without one where no port is free."""
    refusal = ""
    for port in range(settings.port, min(settings.port + PORTS, 2**16)) if settings.port else ():
        address = f"{f'[{settings.host}]' if ':' in settings.host else settings.host}:{port}"
        try:
            runtime = Runtime(telemetry=_telemetry(address, labels))
        # the SDK raises it where the port is in use
        except ValueError as error:
            refusal = f": ports from {settings.port} on at {settings.host}: {error}"
            continue
        return Served(runtime, address)
    return Served(Runtime(telemetry=TelemetryConfig(logging=sdk_logging())), None, refusal)


def _telemetry(address: str, labels: Mapping[str, str]) -> TelemetryConfig:
    prometheus = PrometheusConfig(
        bind_address=address,
        # dashboard.json asks for metrics by the names that these three settings make
        counters_total_suffix=True,
        unit_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides=BUCKETS,
    )
    return TelemetryConfig(
        logging=sdk_logging(), metrics=prometheus, global_tags=labels, attach_service_name=False
    )
