"""Checkpoint archives, damaged or forged, unpacked by the supervisor's code with the compiler's sanitizers on."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.archives import TREE, Member, case, packed
from tests.fuzz.runner import Fuzzer
from tests.fuzz.sanitized import compiled

AT_ONCE = 40
NOBODY = 65_534
HARNESS = Path(__file__).with_name("unpack_archives.c")
WORDS = {
    "ok",
    "damaged",
    "interrupted",
    "not_found",
    "permission_denied",
    "is_directory",
    "name_too_long",
    "failed",
}
OURS = {"stream", "answer", "work", "home", "outside"}


@pytest.fixture(scope="module")
def unpacker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("unpacker"), HARNESS)


def test_any_archive_is_unpacked_or_refused(unpacker: Path, folder: Path, fuzzer: Fuzzer) -> None:
    def check(archives: list[bytes]) -> None:
        answers = unpacked(unpacker, folder / "archives", archives)
        assert {answer.split()[0] for answer in answers} <= WORDS

    fuzzer.run(lambda random: [case(random) for _ in range(AT_ONCE)], check)


def test_the_archive_that_cases_are_made_from_is_unpacked(unpacker: Path, folder: Path) -> None:
    whole = packed(list(TREE))
    answers = unpacked(unpacker, folder / "archives", [whole, whole[:-2_000], case(Random(0))])
    assert answers[0] == f"ok {len(whole) - 512}\n"
    assert answers[1].startswith("interrupted")


@pytest.mark.parametrize(
    "map", [("1", "9223372036854775807", "20"), ("9" * 19,), ("9" * 22,), ("1", "", "20")]
)
def test_numbers_that_overflow_are_damage(unpacker: Path, folder: Path, map: tuple[str, ...]) -> None:
    file = Member("0", "work/hole", content=b"y" * 20, map=map, real_size="4096")
    (answer,) = unpacked(unpacker, folder / "archives", [packed([TREE[0], file])])
    assert answer.startswith("damaged")


def unpacked(unpacker: Path, place: Path, archives: list[bytes]) -> list[str]:
    """The supervisor's answers, once nothing was found beside its folders, and nothing by the sanitizers."""
    for number, content in enumerate(archives):
        prepare(place / str(number), content)
    try:
        done = subprocess.run(
            [unpacker, place, str(len(archives))],
            env={"ASAN_OPTIONS": "detect_leaks=0"},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        assert done.stderr == "", done.stderr[:4_000]
        assert done.stdout.split("\n")[:-1] == [f"{number} 0" for number in range(len(archives))]
        for number in range(len(archives)):
            found = place / str(number)
            assert set(os.listdir(found)) == OURS
            assert os.listdir(found / "outside") == []
        return [(place / str(number) / "answer").read_text() for number in range(len(archives))]
    finally:
        shutil.rmtree(place, onerror=_opened_up)


def prepare(folder: Path, content: bytes) -> None:
    for name in ("work", "home", "outside"):
        (folder / name).mkdir(parents=True)
        if os.geteuid() == 0:
            os.chown(folder / name, NOBODY, NOBODY)
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    (folder / "stream").write_bytes(content)


def _opened_up(remove: Callable[[str], object], path: str, _: object) -> None:
    """For folders that an archive left without permissions, where we aren't root."""
    Path(path).parent.chmod(0o700)
    remove(path)
