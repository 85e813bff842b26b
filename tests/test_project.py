"""The project's own rules: layers, packaging, lint, and a README that runs."""

import ast
import re
import subprocess
import sys
import zipfile
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

LAYERS = (
    "application config dataset_config errors escaping failpoints failure_policy frozen_model host host_failures"
    " identifiers imported logs plugin plugin_settings run_settings templates untrusted worker_settings",
    "listeners",
    "journal",
    "processes",
    "sandbox",
    "temporal",
    "tools",
    "models",
    "rollouts",
    "datasets",
    "environment",
    "runs",
    "monitoring",
    "training",
    "evaluation",
    "embedded",
    "testing",
    "cli",
    "api",
)
"""Packages of the core, each of which may import those before it; only the first line's know one another."""

PLUGINS = ROOT / "clotho" / "plugins"
PLUGINS_THAT_USE_OTHERS = {
    "apptainer": {"containers"},
    "atropos": {"containers"},
    "browser": {"services", "web"},
    "clouds": {"containers"},
    "demo": {"containers"},
    "services": {"web"},
    "task_folders": {"containers"},
    "wandb": {"atropos"},
}
SUPERVISOR = ROOT / "clotho" / "sandbox" / "supervisor"
SUPERVISOR_LAYERS = (
    "bytes confine control sha256",
    "answer frames handover job tar tree user walk",
    "command conduits file freeze input manifest measure member output port relay_files",
    "execution pack unpack waits",
    "transfer",
    "contain enter port relay requests",
    "supervisor",
)
"""Source files of the supervisor, each of which may call those of the lines before its own."""


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Every module that a file names in an import, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_dependencies_point_one_way() -> None:
    """worker | cli -> workflows -> activities -> clotho, and nothing back."""
    forbidden = {
        "clotho": ("workflows", "activities", "worker", "environments", "benchmarks", "tests"),
        "activities": (
            "workflows",
            "worker",
            "environments",
            "clotho.cli",
            "clotho.embedded",
            "clotho.testing",
        ),
        "workflows": (
            "worker",
            "environments",
            "clotho.cli",
            "clotho.embedded",
            "clotho.testing",
            "clotho.journal",
        ),
        "environments": ("workflows", "activities", "worker", "temporalio"),
    }
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for folder, names in forbidden.items()
        for path in modules(folder)
        for name in imports(path)
        if any(name == other or name.startswith(f"{other}.") for other in names)
    ]
    assert wrong == []


def test_the_client_imports_nothing_of_clotho() -> None:
    named = {name.split(".")[0] for path in modules("client") for name in imports(path)}
    assert not named & {"clotho", "workflows", "activities", "worker"}


def library_imports() -> set[tuple[str, str]]:
    """Which package or module of the core imports which other one."""
    found = set()
    for path in modules("clotho"):
        own = path.relative_to(ROOT / "clotho").parts[0].removesuffix(".py")
        for name in imports(path):
            parts = name.split(".")
            if own != "__init__" and parts[0] == "clotho" and len(parts) > 1 and parts[1] != own:
                found.add((own, parts[1]))
    return {arrow for arrow in found if "plugins" not in arrow}


def plugins_imported(path: Path) -> set[str]:
    """The plugins of which a file imports modules."""
    named = {name.split(".")[2] for name in imports(path) if name.startswith("clotho.plugins.")}
    return {name for name in named if (PLUGINS / name).is_dir()}


def test_the_core_imports_no_plugin() -> None:
    core = [path for path in modules("clotho", "workflows", "activities") if PLUGINS not in path.parents]
    knowing = {
        str(path.relative_to(ROOT)): found
        for path in (*core, ROOT / "worker.py")
        if (found := plugins_imported(path))
    }
    assert knowing == {}


def test_plugins_import_no_others_but_those_that_they_build_on() -> None:
    using: dict[str, set[str]] = {}
    for path in modules("clotho/plugins"):
        own = path.relative_to(PLUGINS).parts[0]
        if others := plugins_imported(path) - {own}:
            using.setdefault(own, set()).update(others)
    assert using == PLUGINS_THAT_USE_OTHERS


def test_packages_import_only_those_below_them() -> None:
    rank = {part: number for number, layer in enumerate(LAYERS) for part in layer.split()}
    assert {
        path.name.removesuffix(".py")
        for path in (ROOT / "clotho").iterdir()
        if (path.name.endswith(".py") or (path / "__init__.py").exists())
    } - {"__init__", "plugins"} == set(rank)
    upward = {(own, other) for own, other in library_imports() if rank[other] > rank[own]}
    assert upward == set()


def test_only_the_registry_knows_the_local_sandbox_backend() -> None:
    """Beside the backend whose sandboxes are local ones, and what kills processes to see what becomes of runs."""
    local = "clotho.sandbox.local"
    folders = ("clotho", "workflows", "activities", "environments", "examples", "benchmarks", "chaos")
    knowing = {
        str(path.relative_to(ROOT))
        for path in (*modules(*folders), ROOT / "worker.py", ROOT / "atropos_adapter.py")
        if any(name == local or name.startswith(f"{local}.") for name in imports(path))
    }
    own = ("clotho/sandbox/local/", "clotho/plugins/apptainer/")
    outside = {path for path in knowing if not path.startswith(own)}
    assert outside == {"clotho/sandbox/registry.py", "clotho/plugins/demo/kill_processes.py"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    ahead = TopologicalSorter[str]()
    for own, other in library_imports():
        ahead.add(own, other)
    ahead.prepare()


def test_the_supervisors_files_call_only_those_below_them() -> None:
    """A file has its own functions in its own header, and others' only from there: none is declared elsewhere."""
    rank = {part: number for number, layer in enumerate(SUPERVISOR_LAYERS) for part in layer.split()}
    assert {path.stem for path in SUPERVISOR.glob("*.[ch]")} == set(rank)
    wrong = []
    for path in sorted(SUPERVISOR.glob("*.[ch]")):
        text = path.read_text()
        included = set(re.findall(r'^#include "(\w+)\.h"', text, re.MULTILINE)) - {path.stem}
        wrong += [f"{path.name} includes {name}.h" for name in included if rank[name] >= rank[path.stem]]
        if path.suffix == ".c":
            wrong += [f"{path.name}: {line}" for line in re.findall(r"^extern.*", text, re.MULTILINE)]
            continue
        source = path.with_suffix(".c").read_text()
        for name in re.findall(r"^(?!typedef)\w[\w ]*[ *](\w+)\([^;]*\)[^;]*;", text, re.MULTILINE):
            if not re.search(rf"^\w[\w ()_]*[ *]{name}\([^;]*\) \{{", source, re.MULTILINE):
                wrong.append(f"{path.name} offers {name}, which is in another file")
    assert wrong == []
    assert [
        path.name for path in SUPERVISOR.glob("*.[ch]") if len(path.read_text().splitlines()) >= 330
    ] == []


def test_the_environment_is_read_in_one_place() -> None:
    readers = [
        str(path.relative_to(ROOT))
        for path in modules("clotho", "workflows", "activities", "environments")
        if re.search(r"os\.(getenv|environ(?!\[[^]]+\] = ))", path.read_text())
    ]
    assert readers == ["clotho/config.py"]


LOCKS = ("requirements.lock", "requirements-worker.lock")


def locked(name: str) -> list[str]:
    """The entries of a lock."""
    entries = re.split(r"\n(?=\S)(?!    )", (ROOT / name).read_text().strip())
    return [entry for entry in entries if not entry.startswith("#")]


@pytest.mark.parametrize("name", LOCKS)
def test_the_locks_name_no_host(name: str) -> None:
    lock = (ROOT / name).read_text()
    assert re.findall(r"https?://|--index-url|--find-links", lock) == []
    assert re.search(r"^temporalio==", lock, re.MULTILINE)


@pytest.mark.parametrize(("name", "user"), [(LOCKS[0], "Makefile"), (LOCKS[1], "Dockerfile")])
def test_everything_in_the_locks_has_hashes_and_installing_requires_them(name: str, user: str) -> None:
    packages = locked(name)
    assert len(packages) > 50
    assert [entry.splitlines()[0] for entry in packages if "--hash=sha256:" not in entry] == []
    words = " ".join((ROOT / user).read_text().replace("\\\n", " ").split())
    assert f"--require-hashes -r {name}" in words


def test_images_have_the_versions_that_tests_run_with() -> None:
    every, worker = ({entry.split()[0] for entry in locked(name)} for name in LOCKS)
    assert worker <= every


@pytest.mark.slow
def test_ruff_and_mypy_are_clean() -> None:
    for command in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        done = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_holds_only_clotho_and_all_of_it(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "clotho",
        "clotho_client",
    }
    for needed in (
        "supervisor/supervisor-x86_64",
        "supervisor/supervisor-aarch64",
        "model/weights/model.safetensors",
        "supervisor.c",
        "viewer/templates/base.html",
        "viewer/static/viewer.js",
        "monitoring/dashboard.json",
    ):
        assert any(needed in name for name in names), needed


def test_the_readme_example_is_the_one_that_is_tested() -> None:
    example = (ROOT / "environments" / "word_count.py").read_text()
    assert example in (ROOT / "README.md").read_text()
