"""`python -m docs.generate.notebook`: execute docs/notebook.ipynb in an empty folder, and keep its outputs."""

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "notebook.ipynb"


def executed(folder: Path) -> Any:
    """The notebook with the outputs of this execution. Raises CellExecutionError for a cell that fails."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(Path(folder)), NOTEBOOK)


if __name__ == "__main__":
    main()
