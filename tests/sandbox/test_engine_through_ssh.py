"""Streams to programs in containers of an engine that is reached through ssh."""

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import docker
import pytest

from clotho.plugins.containers.stream import EngineChannel
from tests.machine_image import IMAGE
from tests.sandbox.ssh_host import SshServer
from tests.support import PATIENCE_SECONDS, eventually


class EngineHost(SshServer):
    """An ssh server on whose side `docker system dial-stdio` leads to the engine of the tests."""

    def __init__(self, folder: Path, engine: str) -> None:
        super().__init__(folder)
        key = (folder / "user.pub").read_text()
        dial = f"{shutil.which('podman')} --url {engine} system dial-stdio"
        (folder / "user.pub").write_text(f'command="{dial}" {key}')
        # the program of users, with the key and the configuration of the test
        program = folder / "bin" / "ssh"
        program.parent.mkdir()
        options = f"-F none -i {folder}/user -o UserKnownHostsFile={folder}/known_hosts"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
        program.chmod(0o755)


async def test_the_ssh_program_of_a_stream_ends_with_it_though_its_host_is_cut_off(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("podman") is None or shutil.which("ssh") is None:
        pytest.skip("this takes podman and an ssh client")
    sdk = docker.DockerClient(base_url=engine, timeout=round(PATIENCE_SECONDS))
    container = sdk.containers.create(IMAGE, ["sleep", "600"])
    try:
        container.start()
        program = sdk.api.exec_create(container.id, ["cat"], stdin=True)["Id"]
        with EngineHost(tmp_path / "sshd", engine) as host:
            others = _clients()
            monkeypatch.setenv("PATH", f"{tmp_path}/sshd/bin", prepend=os.pathsep)
            channel = await EngineChannel.open(f"ssh://root@127.0.0.1:{host.port}", program)
            await channel.send(b"hello")
            assert await channel.receive() == b"hello"
            clients = _clients() - others
            assert len(clients) == 1
            for process in host.sessions():
                os.kill(process, signal.SIGSTOP)
            await asyncio.wait_for(channel.close(), PATIENCE_SECONDS)

            async def ended() -> bool:
                return not clients & _clients()

            await eventually(ended, "the end of the ssh program")
    finally:
        container.remove(force=True)


def _clients() -> set[int]:
    """The ssh programs that this process has started."""
    told = subprocess.run(["pgrep", "-P", str(os.getpid()), "-x", "ssh"], capture_output=True, text=True)
    return set(map(int, told.stdout.split()))
