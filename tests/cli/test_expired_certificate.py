"""A Temporal server whose certificate is out of date is named as such."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from clotho.config import TemporalSettings
from clotho.errors import InvalidInput
from clotho.host import program_on_path
from clotho.temporal.connection import connect

NAME = "localhost"


def expired_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate and its key; it was valid for two days long ago."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    )
    named = ("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-days", "2")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(("faketime", "2020-01-01", *command, *named, *files), check=True, capture_output=True)
    return certificate, key


@pytest.mark.skipif(
    any(program_on_path(name) is None for name in ("openssl", "faketime")),
    reason="takes openssl and faketime",
)
async def test_an_expired_certificate_of_temporal_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = await asyncio.to_thread(expired_certificate, tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("TEMPORAL_TLS", "true")
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(certificate))
    with pytest.raises(
        InvalidInput, match=r"the certificate of the Temporal server at .* expired on 2020-01-0\d"
    ):
        await connect(TemporalSettings(address=f"{NAME}:{port}"))
    server.close()
