"""The harness of the how-to page starts its program, and its requests are the same in each start."""

from pathlib import Path

import pytest

from clotho.models.messages import ChatMessage
from clotho.plugins.harness.digest import Normalization
from clotho.plugins.harness.harnesses import KNOWN, harness_of
from clotho.plugins.harness.settings import HarnessSettings
from examples.how_to.plain_harness import PLUGIN, Plain
from tests.docs.markdown import blocks, text_of
from tests.harness.test_harnesses import Places

PAGE = "docs/how-to/harnesses.md"


def test_the_page_shows_it() -> None:
    titled = {block.title: block.text for block in blocks(PAGE)}
    path = "examples/how_to/plain_harness.py"
    assert titled[path] == Path(path).read_text()


def test_it_starts_its_program_with_the_gateways_address(tmp_path: Path) -> None:
    places = Places(tmp_path)
    bin = places.programs.parent / "plain"
    bin.mkdir()
    program = bin / "plain-agent"
    program.write_text(
        '#!/bin/sh\necho "$OPENAI_BASE_URL $OPENAI_API_KEY $OPENAI_MODEL $1"; cat "$2"; exit 3\n'
    )
    program.chmod(0o755)
    plain = Plain(HarnessSettings(path=str(bin)))
    done = places.run(plain.start(places.start()), OPENAI_API_KEY="of-the-image")
    said, _, task = done.stdout.partition("\n")
    assert said == "http://127.0.0.1:4180/v1 k'1 org/model --task"
    assert task == places.start().task
    assert done.returncode in plain.own_failures
    assert set(PLUGIN.agents) == {Plain.name}


@pytest.mark.parametrize(("other", "same"), [("Took 17 ms\nok", True), ("Took 4 ms\nno", False)])
def test_what_differs_between_starts_is_replaced(other: str, same: bool) -> None:
    normalization = Normalization(Plain.volatile, ("/work", "/home/agent"))
    first, second = (
        normalization.digest(ChatMessage(role="tool", tool_call_id="a", content=text))
        for text in ("Took 4 ms\nok", other)
    )
    assert (first == second) is same


def test_the_page_names_every_harness_with_its_dialect() -> None:
    rows = [line for line in text_of(PAGE).splitlines() if line.startswith("| `")]
    for name in KNOWN:
        harness = harness_of(name, HarnessSettings(command=("x",)))
        assert any(row.startswith(f"| `{name}` |") and harness.dialect in row for row in rows), name


def test_the_page_explains_every_setting() -> None:
    rows = [line.split("`")[1] for line in text_of(PAGE).splitlines() if line.startswith("| `harness.")]
    assert {name.partition("=")[0] for name in rows} == {
        f"harness.{name}" for name in HarnessSettings.model_fields
    }
