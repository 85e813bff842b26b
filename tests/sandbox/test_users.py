import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clotho.errors import IsolationUnavailable, SandboxUnavailable
from clotho.sandbox.local.enter import entering
from clotho.sandbox.local.processes import end_processes_of, has_processes, processes_of
from clotho.sandbox.local.users import UserRegistry
from tests.sandbox.conftest import needs_root
from tests.support import PATIENCE_SECONDS

FIRST = 2_030_000 + os.getpid() % 1_000 * 20
"""Of the users that this process claims: of those that run, another's tests would find the processes."""
RUNS = FIRST + 16


def sandbox(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def test_each_sandbox_has_its_own_user_and_keeps_it(tmp_path: Path) -> None:
    registry = UserRegistry(tmp_path / "users", range(FIRST, FIRST + 10))
    a, b = sandbox(tmp_path, "a"), sandbox(tmp_path, "b")
    assert registry.claim(a) == registry.claim(a)
    assert registry.claim(a) != registry.claim(b)


def test_racing_claims_never_share(tmp_path: Path) -> None:
    sandboxes = [sandbox(tmp_path, str(n)) for n in range(16)]
    with ThreadPoolExecutor(16) as pool:
        users = list(
            pool.map(lambda s: UserRegistry(tmp_path / "users", range(FIRST, FIRST + 16)).claim(s), sandboxes)
        )
    assert len(set(users)) == 16


def test_user_is_free_when_released_or_when_its_sandbox_is_gone(tmp_path: Path) -> None:
    registry = UserRegistry(tmp_path / "users", range(FIRST, FIRST + 1))
    first = sandbox(tmp_path, "first")
    user = registry.claim(first)
    with pytest.raises(SandboxUnavailable):
        registry.claim(sandbox(tmp_path, "second"))
    registry.release(user, first)
    assert registry.claim(tmp_path / "second") == user
    (tmp_path / "second").rmdir()
    assert registry.claim(first) == user


def test_users_of_the_system_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable):
        UserRegistry(tmp_path / "users", range(1)).claim(sandbox(tmp_path, "root"))


def test_range_outside_of_the_user_namespace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsolationUnavailable, match="uid_map"):
        UserRegistry(tmp_path / "users", range(2**32 - 2, 2**32 + 5)).require_usable()


@needs_root
def test_user_with_living_processes_is_not_free(tmp_path: Path) -> None:
    users = range(RUNS, RUNS + 2)
    with subprocess.Popen([*entering(RUNS), "sleep", "600"]) as stray:

        def running() -> bool:
            return Path(f"/proc/{stray.pid}").stat().st_uid == RUNS

        while not running():
            time.sleep(0.01)
        assert UserRegistry(tmp_path / "users", users).claim(sandbox(tmp_path, "a")) == RUNS + 1
        end_processes_of(RUNS)
        assert stray.wait(PATIENCE_SECONDS) == -signal.SIGKILL


@needs_root
def test_a_process_that_waits_for_its_parent_is_known_and_keeps_no_user(tmp_path: Path) -> None:
    with subprocess.Popen([*entering(RUNS), "true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert has_processes(RUNS) and not processes_of({RUNS})
        assert UserRegistry(tmp_path / "users", range(RUNS, RUNS + 1)).claim(sandbox(tmp_path, "a"))
        end_processes_of(RUNS)
    assert not has_processes(RUNS)


def test_release_leaves_the_claim_of_who_came_after(tmp_path: Path) -> None:
    """A user is free once its sandbox's folder is gone: somebody may claim it before it is released."""
    registry = UserRegistry(tmp_path / "users", range(FIRST, FIRST + 2))
    first, second, third = (sandbox(tmp_path, name) for name in ("first", "second", "third"))
    user = registry.claim(first)
    first.rmdir()
    assert registry.claim(second) == user
    registry.release(user, first)
    assert registry.claim(third) != user


def test_registry_forgets_at_boot_and_a_folder_does_not(tmp_path: Path) -> None:
    registry = UserRegistry(tmp_path / "users", range(FIRST, FIRST + 1))
    old, new = sandbox(tmp_path, "old"), sandbox(tmp_path, "new")
    user = registry.claim(old)
    registry.release(user, old)
    assert registry.claim(new) == user
    assert registry.held_by(old) is None
    assert registry.held_by(new) == user


def test_a_claim_that_was_cut_off_changes_no_other(tmp_path: Path) -> None:
    """Its process was killed after the user was claimed, and before it had tidied up."""
    registry = UserRegistry(tmp_path / "users", range(FIRST, FIRST + 2))
    first, second = sandbox(tmp_path, "first"), sandbox(tmp_path, "second")
    user = registry.claim(first)
    (tmp_path / "users" / ".claim").hardlink_to(tmp_path / "users" / str(user))
    assert registry.claim(second) != user
    assert registry.held_by(first) == user
    assert {path.name for path in (tmp_path / "users").iterdir()} == {".lock", str(FIRST), str(FIRST + 1)}
