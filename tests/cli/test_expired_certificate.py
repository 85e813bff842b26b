"""Certificates out of date, of a Temporal server and of its client, are named as such."""

import asyncio
import ssl
import subprocess
from asyncio.subprocess import STDOUT
from pathlib import Path

import pytest

from clotho.config import TemporalSettings
from clotho.errors import InvalidInput
from clotho.host import program_on_path
from clotho.temporal.connection import connect

NAME = "localhost"


def make_certificate(folder: Path, day: str | None = None) -> tuple[Path, Path]:
    """A certificate and its key, valid for two days from `day` on, or from now."""
    folder.mkdir()
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    clock = () if day is None else ("faketime", day)
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
    # a client takes no authority's certificate for a server's
    leaf = ("-addext", "basicConstraints=critical,CA:FALSE")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run((*clock, *command, *named, *leaf, *files), check=True, capture_output=True)
    return certificate, key


needs_programs = pytest.mark.skipif(
    any(program_on_path(name) is None for name in ("openssl", "faketime")),
    reason="takes openssl and faketime",
)


@needs_programs
async def test_an_expired_certificate_of_temporal_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = await asyncio.to_thread(make_certificate, tmp_path / "expired", "2020-01-01")
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


@needs_programs
@pytest.mark.parametrize(
    ("holds", "said"),
    [
        (True, r"refuses this client's certificate as expired"),
        (False, r"refuses this client's certificate \(TLS alert: .*certificate required"),
    ],
)
async def test_what_the_server_has_against_the_clients_certificate_is_named(
    holds: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired, server = tmp_path / "expired", tmp_path / "server"
    certificate, key = await asyncio.to_thread(make_certificate, expired, "2020-01-01")
    good, good_key = await asyncio.to_thread(make_certificate, server)
    # openssl, since Python's server closes the connection before it sends the alert
    command = ("openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", str(good), "-key", str(good_key))
    checks = ("-CAfile", str(certificate), "-Verify", "1", "-verify_return_error", "-alpn", "h2")
    process = await asyncio.create_subprocess_exec(
        *command, *checks, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=STDOUT
    )
    try:
        assert process.stdout is not None
        while not (line := (await process.stdout.readline()).decode()).startswith("ACCEPT "):
            assert line, "openssl ended"
        port = line.strip().rpartition(":")[2]
        monkeypatch.setenv("TEMPORAL_TLS", "true")
        monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(good))
        if holds:
            monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(certificate))
            monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", str(key))
        with pytest.raises(InvalidInput, match=said):
            await connect(TemporalSettings(address=f"{NAME}:{port}"))
    finally:
        process.kill()
        await process.wait()


@needs_programs
@pytest.mark.parametrize("broken", ["TEMPORAL_TLS_SERVER_CA_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH"])
@pytest.mark.parametrize("content", ["", "no certificate", "\xff"])
async def test_a_certificate_that_cant_be_read_is_invalid_input(
    broken: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = await asyncio.to_thread(make_certificate, tmp_path / "good")
    other = tmp_path / "other.pem"
    other.write_text(content, encoding="latin-1")
    monkeypatch.setenv("TEMPORAL_TLS", "true")
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(certificate))
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(certificate))
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", str(key))
    monkeypatch.setenv(broken, str(other))
    with pytest.raises(InvalidInput, match="no Temporal server answers"):
        await connect(TemporalSettings(address=f"{NAME}:1"))
