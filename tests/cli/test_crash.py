"""`clotho demo --crash`: workers and a sandbox die, and the run loses nothing."""

import re
from pathlib import Path

import pytest

from tests.cli.command import clotho


@pytest.mark.slow
async def test_the_demo_survives_what_it_kills_and_says_what_it_cost(folder: Path) -> None:
    store = folder / "crash" / "store"
    demo = await clotho("demo", "--crash", "--groups", "1", "--group-size", "3", "--store", store)
    assert demo.status == 0, demo.error
    assert "Traceback" not in demo.output
    rows = dict(re.findall(r"│ (.+?) +│ (.+?) +│\n", demo.output.partition("what it cost")[2]))
    turns = int(rows["model calls repaid"].split()[-1])
    commands = int(rows["commands run again"].split()[-1])
    assert re.fullmatch(r"1 sandbox, [2-5] workers", rows["killed"])
    assert rows["groups lost"] == "0 of 1"
    assert rows["rollouts started again from scratch"] == "0"
    assert turns >= 3
    assert rows["model calls repaid"] == f"0 of {turns}"
    assert rows["model calls answered into a killed process"].isdigit()
    assert commands > 0
    assert rows["commands run again"] == f"0 of {commands}"
    assert rows["sandboxes orphaned"].startswith("0 ")
    assert re.fullmatch(r"1 (exact|restored|replayed)", rows["lost sandboxes made again"])
    assert (store.parent / "exports" / "demo-1.jsonl").read_text().count("\n") == 1
