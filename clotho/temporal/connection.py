"""The connection to a Temporal cluster."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client, Interceptor, RetryConfig
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import TLSConfig

from clotho.config import TemporalSettings
from clotho.errors import InvalidInput
from clotho.escaping import truncate_middle
from clotho.temporal.conversion import DATA_CONVERTER
from clotho.temporal.refusals import refusal

EXPIRED = re.compile(r"InvalidCertificate\(Expired.*?not_after: UnixTime\((\d+)\)")
"""In the SDK's error about a server whose certificate is out of date."""


async def connect(
    settings: TemporalSettings,
    runtime: Runtime | None = None,
    interceptors: Sequence[Interceptor] = (),
    identity: str | None = None,
) -> Client:
    """Connect as the settings say, else as Temporal's own variables and profiles do.

    `runtime` carries the connection: the SDK's own by default. `identity` is what Temporal shows of this process.
    Raises InvalidInput where no server answers.
    """
    options: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
    options.setdefault("target_host", settings.default_address)
    if settings.address is not None:
        options["target_host"] = settings.address
    if settings.namespace is not None:
        options["namespace"] = settings.namespace
    # A handle that waits for a result outlives any outage of the server; workers have limits of their own.
    # max_retries=0 stands for no bound; by default the client gives up after 10 s
    patient = RetryConfig(max_elapsed_time_millis=None, max_retries=0)
    try:
        return await Client.connect(
            **options,
            data_converter=DATA_CONVERTER,
            retry_config=patient,
            runtime=runtime,
            interceptors=interceptors,
            identity=identity,
        )
    # The SDK's core raises nothing more telling when it can't connect.
    except RuntimeError as error:
        if (expired := EXPIRED.search(str(error))) is not None:
            end = f"{datetime.fromtimestamp(int(expired[1]), UTC):%Y-%m-%d %H:%M} UTC"
            raise InvalidInput(
                f"the certificate of the Temporal server at {options['target_host']} expired on {end}: "
                "renew it there, or set this machine's clock"
            ) from error
        tls = options.get("tls")
        tls = TLSConfig() if tls is True else tls
        alert = await refusal(options["target_host"], tls) if tls else None
        if alert is not None:
            why = " as expired" if alert == "certificate expired" else f" (TLS alert: {alert})"
            raise InvalidInput(
                f"the Temporal server at {options['target_host']} refuses this client's certificate{why}: "
                "see TEMPORAL_TLS_CLIENT_CERT_PATH, or the profile's tls"
            ) from error
        raise InvalidInput(
            f"no Temporal server answers at {options['target_host']}: start one with `clotho dev`, "
            f"or set TEMPORAL_ADDRESS ({_innermost(str(error))})"
        ) from error


def is_named(settings: TemporalSettings) -> bool:
    """Whether the settings, Temporal's variables or a profile name the server; else it is the default address."""
    return settings.address is not None or "target_host" in ClientConfig.load_client_connect_config()


def _innermost(error: str) -> str:
    """The message of the innermost of the SDK's nested errors."""
    return truncate_middle((re.findall(r'(?:message|error): "([^"]+)"', error) or [error])[-1], 200)
