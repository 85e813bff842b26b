"""Ports that several processes choose at one time."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from clotho.processes.ports import HOST, free_port, take

USUAL = "from clotho.embedded.services import Ports; it = Ports.free(); said = it.temporal, it.ui, it.model"
TAKE = "from clotho.processes.ports import take; said = (take({port}),)"
SAY_AND_STAY = "; import sys; print(*said, flush=True); sys.stdin.read()"


@contextmanager
def saying(program: str) -> Iterator[list[str]]:
    """What a process says, which lives as long as the body runs."""
    command = [sys.executable, "-c", program + SAY_AND_STAY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdout.readline().split()
        process.stdin.close()


def test_services_that_start_side_by_side_have_ports_of_their_own() -> None:
    with ExitStack() as stack:
        chosen = [stack.enter_context(saying(USUAL)) for _ in range(3)]
    assert len({port for ports in chosen for port in ports}) == 9


def test_a_port_is_taken_while_its_process_lives() -> None:
    port = free_port()
    with saying(TAKE.format(port=port)) as said:
        assert said == ["True"] and not take(port)
    with socket.create_server((HOST, port)):
        assert not take(port)
    assert take(port) and not take(port)
