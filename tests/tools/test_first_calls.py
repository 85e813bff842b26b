"""What a tool's first call in a process costs the event loop: packages that few runs need are imported by then."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.cli.command import CHECKOUT
from tests.sandbox.conftest import needs_root

pytestmark = needs_root
LONGEST_CALLBACK = 0.1


@pytest.mark.parametrize("tool", ["mixture_of_agents", "mcp_bank_transfer", "mcp_ledger_transfer"])
async def test_packages_are_not_imported_on_the_event_loop(tool: str, folder: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.tools.first_call", tool, folder / "first-call"),
        stdout=asyncio.subprocess.PIPE,
        cwd=CHECKOUT,
    )
    output, _ = await program.communicate()
    assert program.returncode == 0
    seconds, _, callback = output.decode().partition(" ")
    assert float(seconds) < LONGEST_CALLBACK, callback
