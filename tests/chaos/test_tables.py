"""The fault matrix as a document; `make chaos` writes it."""

from pathlib import Path

from chaos.plays import KeptPlays
from chaos.results import CellResult
from chaos.table import shown
from chaos.tables import TABLES, put

GOOD = CellResult(fault="workers", phase="reward", recovery=2.0)
LATE = GOOD.model_copy(update={"recovery": 9.0, "recovery_limit": 5.0})


def test_a_table_of_which_no_cell_was_asked_for_stays_in_the_document(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first, containers, tools, harnesses, restarts, delivery, storms, cluster = (
        f"{table.heading}\n\nold" for table in TABLES
    )
    put(page, {"rollouts": f"{first}\n", "delivery": delivery})
    put(page, {"containers": containers, "harnesses": harnesses})
    assert page.read_text() == f"{first}\n\n{containers}\n\n{harnesses}\n\n{delivery}\n"
    put(page, {"storms": storms})
    put(page, {"cluster": cluster, "restarts": restarts})
    new = f"{TABLES[0].heading}\n\nnew"
    put(page, {"rollouts": new, "tools": tools})
    parts = (new, containers, tools, harnesses, restarts, delivery, storms, cluster)
    assert page.read_text() == "\n\n".join(parts) + "\n"


def test_no_play_of_a_cell_makes_another_one_good(tmp_path: Path) -> None:
    kept = KeptPlays(tmp_path, CellResult)
    for play in (GOOD, LATE, GOOD):
        kept.add(play)
    cell = ("workers", "reward")
    assert kept.all() == {cell: [GOOD, LATE, GOOD]}
    assert shown(kept.all()[cell]) == "✗ late: 9 s (1 of 3 plays)" and shown([GOOD]) == "✓ 2 s"
    [table, *_] = TABLES
    document = table.document(kept.all(), "0123")
    assert "1 cells, all with the same version of the code (0123)." in document
    assert "0 of 1 cells are as promised, in 3 plays: lost 0, repaid 0," in document


def test_faults_have_a_name_of_their_own() -> None:
    names = [name for table in TABLES for name in table.faults]
    assert len(names) == len(set(names))
