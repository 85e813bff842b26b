"""`python -m clotho.monitoring.probe [/readyz]`: exits 0 if every worker process of this machine answers well."""

import http.client
import sys

from clotho.config import load_settings
from clotho.monitoring.endpoint import PORTS
from clotho.processes.ports import HOST

ANSWER_SECONDS = 10.0
ANY = ("0.0.0.0", "::")


def faults(host: str, ports: range, path: str) -> list[str]:
    """What is wrong with which port; nothing at all that listens is a fault too."""
    answers = {port: _answer(host, port, path) for port in ports}
    found = {port: said for port, said in answers.items() if said is not None}
    if not found:
        return [f"no worker process answers at {host}, ports {ports[0]} to {ports[-1]}"]
    return [f"port {port}: {said}" for port, said in found.items() if said]


def _answer(host: str, port: int, path: str) -> str | None:
    """What is wrong with the process that listens there; None where none does."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return "" if answer.status == http.client.OK else f"{answer.status} {answer.read().decode()}"
    # usual: a machine has fewer workers than ports that they may take
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def main() -> None:
    settings = load_settings().health
    # an address to listen at is none to connect to
    host = HOST if settings.host in ANY else settings.host
    ports = range(settings.port, min(settings.port + PORTS, 2**16))
    found = faults(host, ports, sys.argv[1] if len(sys.argv) > 1 else "/healthz")
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
