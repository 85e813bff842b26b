"""Deleting what commands left, as an ordinary user, whom the modes of folders keep out."""

import multiprocessing
import os
from pathlib import Path

from clotho.sandbox.supervised.files import delete_any
from tests.sandbox.conftest import needs_root

ORDINARY = 65534


@needs_root
def test_an_ordinary_user_deletes_folders_that_commands_closed(folder: Path) -> None:
    own = folder / "of-an-ordinary-user"
    left = own / "left"
    closed = left / "closed" / "readonly" / "empty"
    closed.mkdir(parents=True)
    (closed / "file").write_text("")
    (left / "link").symlink_to(own / "kept")
    (own / "kept").mkdir(mode=0o500)
    for place in (own, *own.rglob("*")):
        os.chown(place, ORDINARY, ORDINARY, follow_symlinks=False)
    for place, mode in ((closed, 0), (closed.parent, 0o555), (closed.parent.parent, 0)):
        place.chmod(mode)
    process = multiprocessing.get_context("fork").Process(target=_delete_as, args=(ORDINARY, left))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert sorted(each.name for each in own.iterdir()) == ["kept"]
    assert (own / "kept").stat().st_mode & 0o777 == 0o500


def _delete_as(user: int, folder: Path) -> None:
    os.setgid(user)
    os.setuid(user)
    delete_any(folder)
