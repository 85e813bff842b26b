"""One set of services a folder: who comes second is told whether the first runs or is ending."""

from pathlib import Path

import pytest

from clotho.embedded.services import exclusive
from clotho.errors import InvalidInput


def test_a_second_set_is_told_whether_the_first_runs_or_is_ending(tmp_path: Path) -> None:
    with exclusive(tmp_path) as ending:
        with pytest.raises(InvalidInput, match="run already"), exclusive(tmp_path):
            pass
        ending()
        for _ in range(2):
            with pytest.raises(InvalidInput, match="are ending"), exclusive(tmp_path):
                pass
    with exclusive(tmp_path), pytest.raises(InvalidInput, match="run already"), exclusive(tmp_path):
        pass
