"""Tasks of git repositories and registry files, fetched once."""

import json
import subprocess
from pathlib import Path

import pytest

from clotho.errors import InvalidInput
from clotho.plugins.task_folders import sources
from clotho.plugins.task_folders.collection import read_tasks
from clotho.plugins.task_folders.sources import absolute_source
from tests.tasks.making import make_task


def nothing(name: str) -> None:
    return None


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def git(folder: Path, *words: str) -> str:
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Has the tasks a and b in its first commit, and a alone in its second one."""
    folder = tmp_path / "repository"
    make_task(folder / "tasks" / "a")
    make_task(folder / "tasks" / "b")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Two tasks")
    git(folder, "rm", "--quiet", "-r", "tasks/b")
    git(folder, "commit", "--quiet", "--message", "One task")
    return folder


def names(source: str) -> list[str]:
    return [task.name for task in read_tasks(source, nothing).tasks]


def test_a_repository_is_fetched_once_at_its_commit(repository: Path, tmp_path: Path) -> None:
    first, second = git(repository, "rev-list", "--reverse", "HEAD").split()
    url = f"file://{repository}"
    assert names(f"{url}@{first}#tasks") == ["a", "b"]
    assert names(f"{url}@{second}#tasks") == ["a"]
    repository.rename(tmp_path / "gone")
    assert names(f"{url}@{first}#tasks/b") == ["b"]


def test_a_registry_names_sets_of_tasks(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD~1")
    make_task(tmp_path / "here")
    there = {"name": "b", "git_url": f"file://{repository}", "git_commit_id": commit, "path": "tasks/b"}
    sets = [
        {"name": "s", "version": "1.0", "tasks": [there, {"name": "here", "path": "here"}], "metrics": []},
        {"name": "s", "version": "2.0", "description": "", "tasks": [{"name": "here", "path": "here"}]},
    ]
    (tmp_path / "registry.json").write_text(json.dumps(sets))
    registry = f"{tmp_path}/registry.json"
    assert names(f"{registry}#s@1.0") == ["b", "here"]
    assert names(f"{registry}#s@2.0") == ["here"]
    with pytest.raises(InvalidInput, match=r"give one set as NAME@VERSION, of: s@1\.0, s@2\.0"):
        names(f"{registry}#s")
    (tmp_path / "registry.json").write_text('[{"name": "s"}]')
    with pytest.raises(InvalidInput, match=r"0\.version: Field required"):
        names(f"{registry}#s")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("@main", "give a commit of 40 hexadecimal digits"),
        (f"@{'0' * 40}", "0000"),
        ("@HEAD#../..", "give a commit"),
    ],
)
def test_what_is_no_commit_is_refused(repository: Path, cache: Path, source: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        names(f"file://{repository}{source}")
    assert not list(cache.rglob("unfinished-*"))


def test_no_path_leads_out_of_its_repository(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    with pytest.raises(InvalidInput, match="leads out of its repository"):
        names(f"file://{repository}@{commit}#../outside")


def test_no_link_leads_out_of_its_repository(repository: Path, tmp_path: Path) -> None:
    make_task(tmp_path / "outside")
    (repository / "tasks" / "link").symlink_to(tmp_path / "outside")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "A link")
    commit = git(repository, "rev-parse", "HEAD")
    with pytest.raises(InvalidInput, match="link leads out of its repository"):
        names(f"file://{repository}@{commit}#tasks")


def test_no_path_leads_out_of_the_folder_of_a_registry(tmp_path: Path) -> None:
    make_task(tmp_path / "outside")
    (tmp_path / "sets").mkdir()
    registry = tmp_path / "sets" / "registry.json"
    registry.write_text(json.dumps([{"name": "s", "version": "1", "tasks": [{"path": "../outside"}]}]))
    with pytest.raises(
        InvalidInput, match=r"\.\./outside leads out of the folder of registry registry\.json"
    ):
        names(f"{registry}#s")


def test_a_registry_is_read_within_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LARGEST_REGISTRY", 10)
    (tmp_path / "registry.json").write_text("[]" + " " * 9)
    with pytest.raises(InvalidInput, match=r"registry\.json has more than"):
        names(f"{tmp_path}/registry.json#s")


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_source("tasks") == f"{tmp_path}/tasks"
    assert absolute_source("registry.json#a@1") == f"{tmp_path}/registry.json#a@1"
    assert absolute_source("https://example.org/r.git@main#x") == "https://example.org/r.git@main#x"
