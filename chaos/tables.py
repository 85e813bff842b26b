"""The tables of the fault matrix, in the order of the document."""

from pathlib import Path

from chaos import matrix, storm
from chaos.cluster import matrix as cluster
from chaos.containers import matrix as containers
from chaos.delivery import matrix as delivery
from chaos.harness import matrix as harness
from chaos.harness import restarts
from chaos.table import AnyTable
from chaos.tools import matrix as tools

TABLES: tuple[AnyTable, ...] = (
    matrix.TABLE,
    containers.TABLE,
    tools.TABLE,
    harness.TABLE,
    restarts.TABLE,
    delivery.TABLE,
    storm.TABLE,
    cluster.TABLE,
)


def put(document: Path, parts: dict[str, str]) -> None:
    """Write the parts of some tables, by their names; those of all others stay as the document has them."""
    rest = document.read_text() if document.exists() else ""
    found: list[str] = []
    for table in reversed(TABLES):
        rest, heading, old = rest.partition(f"{table.heading}\n")
        found.insert(0, parts.get(table.name, heading + old).strip())
    document.write_text("\n\n".join(filter(None, found)) + "\n")
