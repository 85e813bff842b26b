"""Files that rollouts leave, in the journal and exported."""

import io
import tarfile
import threading
from collections import UserDict
from pathlib import Path

import zstandard

from clotho.identifiers.keys import manifest_key, prompt_key, reward_key, scored_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.artifacts import keep_artifacts
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.rollouts.verification import RewardEntry
from clotho.runs.export import export_artifacts
from clotho.runs.request import run_manifest

FILES = {"b/run.sh": b"true\n", "a": b""}


async def test_the_same_files_are_kept_once_and_outlive_the_sealing_of_their_rollouts(tmp_path: Path) -> None:
    journal = Journal(FilesystemStore(tmp_path / "journal"))
    manifest = run_manifest("word_count", "run", "m")
    await journal.write(manifest_key("run"), manifest)
    siblings = []
    for number in range(2):
        rollout = f"run/g000000/r{number}"
        kept = await keep_artifacts(journal, "run", dict(reversed(FILES.items())) if number else FILES)
        entry = RewardEntry(score=1.0, breakdown={}, log="", lease=None, epoch=0, seconds=0.0, artifacts=kept)
        await journal.write(prompt_key(rollout), Prompt(item={}, messages=(), seed=0))
        await journal.write(reward_key(rollout), entry)
        await journal.seal(rollout)
        siblings.append(RolloutSummary(rollout=rollout, ending=Ending(outcome=Outcome.COMPLETED), score=1.0))
    scored = GroupEntry(item={}, toolsets=(), siblings=tuple(siblings))
    await journal.write(scored_key("run/g000000"), scored)
    assert await export_artifacts(journal, "run", tmp_path / "out") == 1
    (archive,) = (tmp_path / "out").iterdir()
    with tarfile.open(fileobj=io.BytesIO(zstandard.decompress(archive.read_bytes()))) as tar:
        members = {member.name: tar.extractfile(member) for member in tar}
    assert {name: file and file.read() for name, file in members.items()} == FILES


async def test_a_rollout_without_files_has_no_archive(tmp_path: Path) -> None:
    assert await keep_artifacts(Journal(FilesystemStore(tmp_path)), "run", {}) is None


class Watched(UserDict[str, bytes]):
    """Files that keep in which threads they were read."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.readers: set[threading.Thread] = set()

    def __getitem__(self, name: str) -> bytes:
        self.readers.add(threading.current_thread())
        return super().__getitem__(name)


async def test_files_are_packed_beside_the_event_loop(tmp_path: Path) -> None:
    files = Watched(FILES)
    assert await keep_artifacts(Journal(FilesystemStore(tmp_path)), "run", files) is not None
    assert files.readers and threading.current_thread() not in files.readers
