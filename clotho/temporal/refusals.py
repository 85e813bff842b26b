"""A handshake tells why a Temporal server refuses this client's certificate.

Under TLS 1.3 the server looks at the certificate after the client's side of the handshake. Whether the SDK's error
tells of the server's alert, or only of a connection that closed, is decided by a race between its request and that
answer.
"""

import asyncio
import re
import ssl
import tempfile
from pathlib import Path

from temporalio.service import TLSConfig

LONGEST_ANSWER = 5.0
"""Seconds that a server has for its answer to a handshake."""
ALERT = re.compile(r"ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA)")


async def refusal(address: str, tls: TLSConfig) -> str | None:
    """The alert with which the server ends a connection of this client, as in `certificate expired`.

    None where it ends none, doesn't answer, or fails for another reason; also where the certificates can't be read.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    name = tls.verification_server_name or tls.domain or host
    try:
        async with asyncio.timeout(LONGEST_ANSWER):
            context = await asyncio.to_thread(_context, tls)
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
            try:
                await reader.read(1)
            finally:
                writer.transport.abort()
    except ssl.SSLError as error:
        alert = ALERT.search(error.reason or "")
        return None if alert is None else alert[1].lower().replace("_", " ")
    except (OSError, ValueError):
        pass
    return None


def _context(tls: TLSConfig) -> ssl.SSLContext:
    authorities = None if tls.server_root_ca_cert is None else tls.server_root_ca_cert.decode()
    context = ssl.create_default_context(cadata=authorities)
    context.set_alpn_protocols(["h2"])
    if tls.client_cert is not None:
        # Python takes them from files alone
        with tempfile.TemporaryDirectory(prefix="clotho-") as private:
            certificate, key = Path(private, "certificate.pem"), Path(private, "key.pem")
            certificate.write_bytes(tls.client_cert)
            key.write_bytes(tls.client_private_key or b"")
            # without a password OpenSSL would ask for that of an encrypted key at the terminal
            context.load_cert_chain(certificate, key, password="")
    return context
