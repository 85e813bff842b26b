"""`clotho run` of task folders that say nothing of a network, before it reaches for Temporal."""

from pathlib import Path

from tests.cli.command import clotho
from tests.tasks.making import IMAGE, make_task

RUN = ("--run", "silent", "--agent", "nop", "--temporal", "127.0.0.1:9")
NOTICE = "2 tasks say nothing of a network"
PUBLIC = """default_network="public\""""


async def test_one_task_is_no_tasks(tmp_path: Path) -> None:
    make_task(tmp_path / "tasks" / "one")
    order = ("run", f"tasks:{tmp_path / 'tasks'}", *RUN, "--store", tmp_path / "store")
    said = " ".join((await clotho(*order)).output.split())
    assert "1 task says nothing of a network, and has none" in said


async def test_a_run_says_once_how_many_tasks_name_no_network(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_task(tmp_path / "tasks" / name)
    make_task(tmp_path / "tasks" / "three", f'{IMAGE}network_mode = "public"\n')
    order = ("run", f"tasks:{tmp_path / 'tasks'}", *RUN, "--store", tmp_path / "store")
    first = await clotho(*order)
    said = " ".join(first.output.split())
    assert said.count(NOTICE) == 1, first.error
    assert f"--set '{PUBLIC}'" in said
    assert NOTICE not in (await clotho(*order, "--set", PUBLIC)).output
