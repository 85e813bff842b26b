"""Paths, modules, links, commands and settings that the documentation names are there."""

import ast
import importlib
import importlib.util
import operator
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
import yaml
from atroposlib.envs.server_handling.server_manager import APIServerConfig

import worker
from clotho.cli import offered_commands
from clotho.cli.evaluation import ENVIRONMENT
from clotho.cli.imported import ImportedCommand
from clotho.config import DELIMITER, PREFIX, TOKEN_VARIABLE, settings_class
from clotho.plugin import GROUP
from clotho.plugins.atropos.compat.config import HermesAgentEnvConfig
from tests.docs.markdown import (
    ELLIPSIS,
    LINK,
    NAMES,
    ROOT,
    anchors,
    blocks,
    commands,
    mentioned_commands,
    spans,
    text_of,
)

FOLDERS = [
    "activities",
    "benchmarks",
    "chaos",
    "client",
    "clotho",
    "docs",
    "environments",
    "examples",
    "tests",
    "workflows",
]
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]*|[\w-]+\.(?:py|lock|toml)")
MODULE = re.compile(rf"(?:{'|'.join(FOLDERS)})(?!\.yaml)(?:\.\w+)+")
PLACE = re.compile(r"(?P<file>[\w/]+\.py):(?P<name>[\w.]+)")
AUTHORS = ("my_", "test_my_")
"""Beginnings of the names of files that a reader writes."""
ADAPTER = {
    *(f"--env.{name}" for name in HermesAgentEnvConfig.model_fields),
    *(f"--openai.{name}" for name in APIServerConfig.model_fields),
    "--config",
    "--help",
}


@pytest.fixture(scope="session")
def programs() -> dict[str, Any]:
    """The commands of the command line by name, and the worker."""
    workers = typer.Typer()
    workers.command("worker")(worker.run_workers)
    commands: dict[str, Any] = {each.name: ImportedCommand(each).imported() for each in offered_commands()}
    return {**commands, "worker": typer.main.get_command(workers)}


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page: str) -> None:
    for link in LINK.finditer(text_of(page)):
        target = (ROOT / page).parent / link["path"] if link["path"] else ROOT / page
        assert target.exists(), link[0]
        if link["anchor"]:
            assert link["anchor"] in anchors(target), link[0]


@pytest.mark.parametrize("page", NAMES)
def test_paths_are_there(page: str) -> None:
    named = [span for span in spans(page) if PATH.fullmatch(span) and not span.startswith(AUTHORS)]
    assert [path for path in named if not is_there(path, (ROOT / page).parent)] == []


@pytest.mark.parametrize("page", NAMES)
def test_places_in_files_are_there(page: str) -> None:
    for span in spans(page):
        if (place := PLACE.fullmatch(span)) is not None:
            module = importlib.import_module(place["file"].removesuffix(".py").replace("/", "."))
            assert operator.attrgetter(place["name"])(module), span


OF_THE_EXAMPLE = ("best", "CLOTHO_PLUGINS__REWARDS__SHOWN")
"""A command and a setting of the plugin that docs/how-to/plugin.md shows: tests/test_installed.py uses them."""


def is_there(path: str, beside: Path) -> bool:
    """Whether `path` is below the repository's root or `beside`; a bare name may be in any of the folders."""
    folders = [ROOT / folder for folder in FOLDERS] if "/" not in path else []
    places = (beside.glob(path), ROOT.glob(path), *(folder.rglob(path) for folder in folders))
    return any(next(iter(found), None) for found in places)


@pytest.mark.parametrize("page", NAMES)
def test_modules_and_what_is_imported_from_them_are_there(page: str) -> None:
    for span in spans(page):
        if MODULE.fullmatch(span) and not PATH.fullmatch(span) and span != GROUP:
            assert resolved(span), span
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(textwrap.dedent(block.text))):
                if isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
                    missing = [each.name for each in node.names if not resolved(f"{node.module}.{each.name}")]
                    assert missing == [], node.module


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in (*FOLDERS, "atropos_adapter")


def resolved(name: str) -> bool:
    """Whether it is a module, or something at the top of one.

    Modules are read, not imported: trainers' packages have environments of their own. Packages may load what they
    offer when it is asked for.
    """
    module, _, inside = name.rpartition(".")
    spec = importlib.util.find_spec(module) if module else None
    if spec is None:
        return False
    if spec.submodule_search_locations is not None:
        return hasattr(importlib.import_module(module), inside) or importlib.util.find_spec(name) is not None
    return spec.origin is not None and inside in named_in(ast.parse(Path(spec.origin).read_text()))


def named_in(tree: ast.Module) -> set[str]:
    """What a module defines or imports at its top."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


@pytest.mark.parametrize("page", NAMES)
def test_commands_in_blocks_are_taken_by_the_programs(page: str, programs: dict[str, Any]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for words in commands(page):
        whole = ELLIPSIS not in words and not any("[" in word for word in words)
        check([word for word in words if word != ELLIPSIS], programs, makefile, whole)


@pytest.mark.parametrize("page", NAMES)
def test_commands_in_sentences_have_the_options_that_are_named(page: str, programs: dict[str, Any]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for words in mentioned_commands(page):
        check([word for word in words if word != ELLIPSIS], programs, makefile, whole=False)


def check(words: list[str], programs: dict[str, Any], makefile: str, whole: bool) -> None:
    """Fails unless the program that `words` start takes the rest of them; others' programs are passed over."""
    match words:
        case ["make", *rest]:
            check_make(rest, makefile)
        case ["clotho", "serve", *rest] | ["python", "atropos_adapter.py", *rest]:
            unknown = (
                {word.partition("=")[0] for word in rest if word.startswith("--")} - ADAPTER - {"--mode"}
            )
            assert not unknown, words
        case ["clotho", command, *rest] if command not in ("COMMAND", "--help", *OF_THE_EXAMPLE):
            assert command in programs, words
            check_options(programs[command], rest, whole)
        case ["python", "worker.py", *rest]:
            check_options(programs["worker"], rest, whole)
        case ["python" | "python3", "-m", module, *_] if is_ours(module):
            assert importlib.util.find_spec(module) is not None, words


def check_make(words: list[str], makefile: str) -> None:
    for word in (word for word in words if not word.startswith("-")):
        variable, given, _ = word.partition("=")
        if given:
            assert f"$({variable})" in makefile, word
        else:
            assert re.search(rf"^{word}:", makefile, re.MULTILINE), f"make {word}"


def check_options(command: Any, words: list[str], whole: bool) -> None:
    """Those of a group are its commands'; `clotho eval` has one for a first word that names none of them."""
    if words and (commands := getattr(command, "commands", None)) is not None:
        name = words[0] if words[0] in commands else ENVIRONMENT
        command, words = commands[name], words[words[0] in commands :]
    if whole:
        try:
            command.make_context(command.name, list(words))
        except typer.Exit:  # --help
            pass
        except SystemExit as end:
            raise AssertionError(words) from end
        return
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    named = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert named <= {*known, "--help"}, words


@pytest.mark.parametrize("page", NAMES)
def test_settings_are_there(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in re.findall(rf"\b{PREFIX}[A-Z0-9_]+\b", text_of(page)):
        if variable.removeprefix(PREFIX).lower() not in verifier_variables():
            assert variable == TOKEN_VARIABLE or is_setting(variable), variable
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.title == "clotho.yaml":
            settings_class().model_validate(yaml.safe_load(block.text))


def is_setting(variable: str) -> bool:
    if variable in OF_THE_EXAMPLE:
        return True
    model: Any = settings_class()
    for part in variable.removeprefix(PREFIX).lower().split(DELIMITER):
        field = model.model_fields.get(part)
        if field is None:
            return False
        model = field.annotation
    return True


def verifier_variables() -> tuple[str, ...]:
    """Variables that verifiers find in their environment."""
    return "as_agent", "hidden_files"
