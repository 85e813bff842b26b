"""Bad input, as the real command meets it: one line that says what to do, and an exit status."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.command import clotho, clotho_many

NOWHERE = "127.0.0.1:9"
RUN = ("--run", "refused", "--model", "http://127.0.0.1:9/v1", "--model-name", "m", "--temporal", NOWHERE)
KEY = "sk-very-secret"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with environments: one that is sound, and some that aren't."""
    environments = tmp_path / "environments"
    environments.mkdir()
    (environments / "__init__.py").touch()
    sound = "from clotho.environment import Environment\n\n\nclass Sound(Environment):\n    pass\n"
    (environments / "sound.py").write_text(sound)
    (environments / "needy.py").write_text("import json\nimport env_tools_that_are_missing\n" + sound)
    # Its missing module has a name that its own begins with.
    (environments / "prefixed.py").write_text("import env\n" + sound)
    (environments / "broken.py").write_text("def f(:\n")
    (tmp_path / "items.jsonl").write_text('{"fine": 1}\n\n{"broken": \n')
    (tmp_path / "list.jsonl").write_text("[1]\n")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "file").touch()
    return tmp_path


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown environment": (
        ("run", "nothing", *RUN),
        "unknown environment 'nothing': there is no module env",
    ),
    "failing import": (
        ("run", "needy", *RUN),
        "environment 'needy' can't be imported: ModuleNotFoundError: No module named "
        "'env_tools_that_are_missing' ({here}/environments/needy.py:2)",
    ),
    "import of a prefix": (
        ("run", "prefixed", *RUN),
        "can't be imported: ModuleNotFoundError: No module named 'env'",
    ),
    "syntax error": (("run", "broken", *RUN), "environment 'broken' can't be imported: File"),
    "toolset": (
        ("run", "sound", *RUN, "--set", 'enabled_toolsets=["cooking"]'),
        "unknown toolset 'cooking'",
    ),
    "field": (
        ("run", "sound", *RUN, "--set", "colour=1"),
        "configuration of environment 'sound': colour: Extra",
    ),
    "assignment": (("run", "sound", *RUN, "--set", "colour"), "--set colour: write NAME=VALUE"),
    "body": (("run", "sound", *RUN, "--extra-body", "{"), "--extra-body is not JSON"),
    "body's field": (("run", "sound", *RUN, "--extra-body", '{"model": 1}'), "extra_body can't set model"),
    "run's name": (("run", "sound", *RUN, "--run", "No!"), "run name 'No!': use 1 to 64 of a-z"),
    "URL": (("run", "sound", *RUN, "--model", "host:8000"), "'host:8000' is no URL of a model server"),
    "key in URL": (
        ("run", "sound", *RUN, "--model", f"http://u:{KEY}@host/v1"),
        "holds credentials: leave them out, and name the environment variable",
    ),
    "key in place of its variable": (
        ("run", "sound", *RUN, "--api-key-env", KEY),
        "the key of a model server is given by the name of an environment variable",
    ),
    "item": (
        ("run", "sound", *RUN, "--items", "items.jsonl"),
        "items.jsonl:3: not a JSON object (Invalid JSON",
    ),
    "item's kind": (("run", "sound", *RUN, "--items", "list.jsonl"), "list.jsonl:1: not a JSON object"),
    "no items": (("run", "sound", *RUN, "--items", "empty.jsonl"), "empty.jsonl holds no items"),
    "Temporal": (
        ("run", "sound", *RUN),
        f"no Temporal server answers at {NOWHERE}: start one with `clotho dev`, or set TEMPORAL_ADDRESS",
    ),
    "store": (
        ("run", "sound", *RUN, "--store", "file/store"),
        "store folder {here}/file/store can't be written",
    ),
    "no store": (("status", "--store", "nowhere"), "there is no store at nowhere"),
}


@pytest.mark.slow
async def test_each_is_refused_in_one_line(here: Path) -> None:
    answers = await clotho_many({what: arguments for what, (arguments, _) in REFUSED.items()}, here)
    for what, (_, reason) in REFUSED.items():
        answer = answers[what]
        assert answer.status == 1, what
        assert answer.complaint.startswith("clotho: "), what
        assert reason.format(here=here) in answer.complaint, what
        assert KEY not in answer.complaint, what
    assert not (here / "nowhere").exists()


async def test_wrong_usage_exits_with_2(here: Path) -> None:
    answers = await clotho_many({"option": ("run", "sound"), "command": ("cook",)}, here)
    assert [answer.status for answer in answers.values()] == [2, 2]
    assert "Missing option '--run'" in answers["option"].error
    assert "No such command 'cook'" in answers["command"].error


FAULTY_FILES = {
    "store: [unclosed": "clotho.yaml is not valid YAML: while parsing",
    "store: x\ncolour: red": "configuration: colour: Extra inputs are not permitted",
    "worker:\n  drain_seconds: soon": "configuration: worker.drain_seconds: Input should be a valid number",
    "- a list": "clotho.yaml must hold names and values",
}


async def test_a_faulty_configuration_file_is_named(tmp_path: Path) -> None:
    orders = {str(number): ("status",) for number in range(len(FAULTY_FILES))}
    for name, text in zip(orders, FAULTY_FILES, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "clotho.yaml").write_text(text)
    answers = await clotho_many(orders, tmp_path, apart=True)
    for answer, reason in zip(answers.values(), FAULTY_FILES.values(), strict=True):
        assert answer.status == 1
        assert reason in answer.complaint


@asynccontextmanager
async def answering(body: str, status: str = "200 OK") -> AsyncIterator[str]:
    """A server that gives the same answer to everything."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write((head + body).encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


LISTS = {
    '{"data": [{"id": "small"}, {"id": "large"}]}': "lists 2 models, give one with --model-name: small, large",
    '{"data": []}': "lists 0 models",
    "<html>": "no OpenAI-compatible API answers here: such URLs mostly end in /v1",
}


async def test_a_model_that_cannot_be_guessed_is_asked_for(here: Path) -> None:
    async with AsyncExitStack() as servers:
        orders = {}
        for number, body in enumerate(LISTS):
            url = await servers.enter_async_context(answering(body))
            orders[str(number)] = ("run", "sound", "--run", "x", "--model", url, "--temporal", NOWHERE)
        answers = await clotho_many(orders, here)
    for answer, reason in zip(answers.values(), LISTS.values(), strict=True):
        assert answer.status == 1
        assert reason in answer.complaint


async def test_a_key_that_a_server_repeats_is_not_shown(here: Path) -> None:
    async with answering(f"bad key {KEY}", "403 Forbidden") as url:
        options = ("--run", "x", "--model", url, "--api-key-env", "MY_KEY", "--temporal", NOWHERE)
        answer = await clotho("run", "sound", *options, folder=here, environment={"MY_KEY": KEY})
    assert answer.status == 1
    assert "bad key [REDACTED]" in answer.complaint
    assert KEY not in answer.complaint
