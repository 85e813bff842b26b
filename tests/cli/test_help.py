"""What only prints is printed at once, and says what the commands themselves say."""

import json
import subprocess
import sys

import pytest

from clotho.cli import offered_commands
from clotho.cli.imported import ImportedCommand
from clotho.plugin import Command

LISTED = """
import json, sys
from contextlib import suppress
from clotho.cli import app
sys.argv = ["clotho", {option!r}]
with suppress(SystemExit):
    app()
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})), file=sys.stderr)
"""
HEAVY = {"temporalio", "pydantic", "httpx", "aiohttp", "transformers", "boto3", "docker", "openai"}


@pytest.mark.parametrize("command", offered_commands(), ids=lambda command: command.name)
def test_summaries_are_what_commands_say_of_themselves(command: Command) -> None:
    help_text = ImportedCommand(command).imported().help or ""
    assert command.summary == " ".join(help_text.partition("\n\n")[0].split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_what_is_only_printed_imports_little(option: str) -> None:
    command = [sys.executable, "-c", LISTED.format(option=option)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "otho" in done.stdout
    assert not HEAVY.intersection(json.loads(done.stderr))
