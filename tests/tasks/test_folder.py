"""The files of a task folder, and folders of tasks."""

import time
from pathlib import Path

import pytest

from clotho.errors import InvalidInput
from clotho.plugins.task_folders.collection import read_tasks
from clotho.plugins.task_folders.folder import instruction_of, read_task
from clotho.plugins.task_folders.sandboxes import local_sandbox
from clotho.templates import resolved
from tests.tasks.making import IMAGE, TEST, make_task


def nothing(name: str) -> None:
    return None


@pytest.mark.parametrize(
    ("text", "instruction"),
    [
        ("Do it.\n", "Do it.\n"),
        ("<!-- x CANARY y -->\n\n  \nDo it.", "Do it."),
        ("# canary GUID 1\n# Canary 2\nDo it.", "Do it."),
        ("\n# canary\nDo it.", "\n# canary\nDo it."),
        ("Do it.\n# canary", "Do it.\n# canary"),
        ("\n\nDo it.", "\n\nDo it."),
    ],
)
def test_canary_lines_are_cut_from_the_instruction(text: str, instruction: str) -> None:
    assert instruction_of(text) == instruction


def test_a_canary_of_any_length_is_read_in_linear_time() -> None:
    def seconds(length: int) -> float:
        begun = time.process_time()
        instruction_of("<!--" + "canary" * length)
        return time.process_time() - begun

    assert min(seconds(160_000) for _ in range(3)) < 0.5


def test_an_instruction_is_read_within_its_bound(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", instruction="x" * ((1 << 20) + 1))
    with pytest.raises(InvalidInput, match=r"instruction\.md has more than 1 MiB"):
        read_task(folder, nothing)


def test_a_file_of_the_task_that_is_a_link_out_of_it_is_never_read(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", without=("task.toml",))
    (tmp_path / "secret").write_text("secret = 1\n")
    (folder / "task.toml").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match=r"task\.toml: the link leads out of the task"):
        read_task(folder, nothing)


def test_variables_are_resolved_from_whole_templates_only() -> None:
    values = {
        "A": "${SET}",
        "B": "${EMPTY:-d}",
        "C": "${UNSET:-d}",
        "D": "x${SET}",
        "E": "$SET",
        "F": "${SET:-x}${OTHER}",
        "G": "${UNSET:-x}${OTHER}",
        "H": "${UNSET:-}",
    }
    expected = {"A": "1", "B": "", "C": "d", "D": "x${SET}", "E": "$SET", "F": "1", "G": "x}${OTHER", "H": ""}
    assert resolved(values, "env", {"SET": "1", "EMPTY": ""}.get) == expected


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("task.toml", "there is no task.toml"),
        ("instruction.md", "there is no instruction.md"),
        ("tests/test.sh", "there is no tests/test.sh"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, without: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_task(make_task(tmp_path / "task", without=(without,)), nothing)


def test_a_verifier_whose_image_has_the_tests_needs_none(tmp_path: Path) -> None:
    file = f'{IMAGE}[verifier.environment]\ndocker_image = "graders/one"\n'
    task = read_task(make_task(tmp_path / "task", file, without=("tests/test.sh",)), nothing)
    assert task.bundles_tests and task.grading_image == "graders/one" and task.downloads == ()
    folder = make_task(tmp_path / "own", f'{IMAGE}[verifier]\nenvironment_mode = "separate"\n')
    assert not read_task(folder, nothing).bundles_tests
    (folder / "tests" / "Dockerfile").write_text("FROM scratch")
    assert read_task(folder, nothing).grading_dockerfile == folder / "tests" / "Dockerfile"
    (folder / "tests" / "docker-compose.yaml").write_text("services: {}")
    with pytest.raises(InvalidInput, match=r"tests/docker-compose\.yaml: a verifier has one container"):
        read_task(folder, nothing)


def test_a_task_without_an_image_needs_a_dockerfile(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", "")
    with pytest.raises(InvalidInput, match="neither environment/ nor"):
        read_task(folder, nothing)
    (folder / "environment").mkdir()
    with pytest.raises(InvalidInput, match="has no Dockerfile"):
        read_task(folder, nothing)
    (folder / "environment" / "Dockerfile").write_text("FROM scratch")
    assert read_task(folder, nothing).image is None


def test_files_are_taken_with_their_modes_and_inner_links(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task")
    (folder / "tests" / "deep").mkdir()
    (folder / "tests" / "deep" / "link").symlink_to("../../solution/solve.sh")
    (folder / "tests" / "test.sh").chmod(0o755)
    (folder / "environment").mkdir()
    (folder / "environment" / "data.bin").write_bytes(b"\0\xff")
    task = read_task(folder, nothing)
    assert set(task.tests.content) == {"test.sh", "deep/link"}
    assert task.tests.executable == {"test.sh"}
    assert task.workdir_files.content == {"data.bin": b"\0\xff"}
    before = task.digest
    (folder / "tests" / "test.sh").chmod(0o644)
    assert read_task(folder, nothing).digest != before


@pytest.mark.parametrize("mend", ["write", "mode", "more", "less"])
def test_other_content_than_was_read_is_never_given(tmp_path: Path, mend: str) -> None:
    folder = make_task(tmp_path / "task")
    test, other = folder / "tests" / "test.sh", folder / "tests" / "other"
    other.write_text("1")
    task = read_task(folder, nothing)
    before = task.tests
    match mend:
        case "write":
            test.write_text(TEST + "# mended")
        case "mode":
            test.chmod(0o755)
        case "more":
            (folder / "tests" / "more").write_text("")
        case "less":
            other.unlink()
    with pytest.raises(InvalidInput, match="tests/ of task task has changed since it was read"):
        assert task.tests
    assert task.solution is not None
    assert read_task(folder, nothing).digest != task.digest
    test.write_text(TEST)
    other.write_text("1")
    test.chmod(0o644)
    (folder / "tests" / "more").unlink(missing_ok=True)
    assert task.tests == before


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", ".."])
def test_links_that_leave_the_task_or_lead_in_circles_are_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").write_text("")
    folder = make_task(tmp_path / "task")
    (folder / "tests" / "link").symlink_to(target)
    with pytest.raises(InvalidInput, match="the link leads"):
        read_task(folder, nothing)


def test_what_would_be_ignored_is_refused(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task")
    (folder / "tests" / ".harborignore").write_text("*.md")
    (folder / "trajectory.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"trajectory\.json: .*\.harborignore: "):
        read_task(folder, nothing)


def test_a_script_with_dos_line_ends_is_refused(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task")
    (folder / "tests" / "test.sh").write_bytes(b"#!/bin/sh\r\necho\r\n")
    with pytest.raises(InvalidInput, match="CR LF"):
        read_task(folder, nothing)


def test_downloads_of_the_tests_are_known(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task")
    (folder / "tests" / "test.sh").write_text(
        "# curl\napt-get update\nx && pip install y; pip z\ncurl -L u\n"
    )
    assert read_task(folder, nothing).downloads == ("apt-get", "pip", "curl")


@pytest.mark.parametrize(
    ("compose", "said"),
    [
        ("services: {main: {image: a}, db: {image: b}}", "services besides main: db"),
        ("services: {db: {image: b}}", "services besides main: db"),
        ("services: {main: &m {image: a}, db: *m}", "aliases"),
        ("services: " + "[" * 20_000, "nested too deep"),
        ("#" * (256 << 10) + "\n", "has more than 256 KiB"),
        ("services: {main: {image: a, ports: [80]}}", "services.main.ports: not supported"),
        ("services: {main: {build: ..}}", "services.main.build.context"),
        ("services: {main: {image: a, environment: [A]}}", "write NAME=VALUE"),
        ("services: {main: {image: a, environment: {A: '${B}'}}}", "put variables into"),
        ("volumes: {}\nservices: {main: {}}", "volumes: not supported"),
        ("a: [", "not YAML"),
        ("[]", "docker-compose.yaml"),
    ],
)
def test_compose_beyond_one_plain_service_is_refused(tmp_path: Path, compose: str, said: str) -> None:
    folder = make_task(tmp_path / "task", "")
    (folder / "environment").mkdir()
    (folder / "environment" / "docker-compose.yaml").write_text(compose)
    with pytest.raises(InvalidInput) as refused:
        read_task(folder, nothing)
    assert said in str(refused.value)


def test_compose_with_one_service_is_read(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", "")
    (folder / "environment").mkdir()
    service = "services: {main: {image: a, environment: [A=1], working_dir: /app, user: 7, command: [x]}}"
    (folder / "environment" / "docker-compose.yaml").write_text(service)
    task = read_task(folder, nothing)
    assert task.service is not None
    assert (task.image, task.service.environment, task.service.user) == ("a", {"A": "1"}, "7")
    assert task.workdir_files.content == {}


def test_each_broken_task_of_a_folder_is_reported(tmp_path: Path) -> None:
    make_task(tmp_path / "b")
    make_task(tmp_path / "a")
    make_task(tmp_path / "unknown", "nonsense = 1")
    make_task(tmp_path / "bare", without=("task.toml",))
    (tmp_path / "notes").mkdir()
    found = read_tasks(str(tmp_path), nothing)
    assert [task.name for task in found.tasks] == ["a", "b"]
    assert found.broken == ("task bare: there is no task.toml", "task unknown: nonsense: unknown key")
    assert [task.name for task in read_tasks(str(tmp_path / "a"), nothing).tasks] == ["a"]


def test_names_are_used_once(tmp_path: Path) -> None:
    file = '[task]\nname = "o/n"\n[environment]\ndocker_image = "x"\n'
    make_task(tmp_path / "a", file)
    make_task(tmp_path / "b", file)
    assert read_tasks(str(tmp_path), nothing).broken == ("task b: a has the name o/n, too",)


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no folder in it has a"):
        read_tasks(str(tmp_path), nothing)
    with pytest.raises(InvalidInput, match="no such folder"):
        read_tasks(str(tmp_path / "nowhere"), nothing)


@pytest.mark.parametrize(
    ("file", "compose", "said"),
    [
        ('[agent]\nuser = "1000:1000"', "", "task bad: user: "),
        ('[environment]\nworkdir = "/my app"', "", "'/my app' is no absolute path of a folder"),
        ("", "services: {main: {working_dir: /logs/verifier/}}", "workdir: /logs/verifier is emptied before"),
        ('[environment]\nworkdir = "/tests/app"', "", "workdir: /tests/app is emptied before the tests run"),
    ],
)
def test_a_sandbox_that_cannot_be_is_reported_with_its_folder(
    tmp_path: Path, file: str, compose: str, said: str
) -> None:
    folder = make_task(tmp_path / "bad", file)
    make_task(tmp_path / "good")
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").write_text("FROM scratch")
    if compose:
        (folder / "environment" / "docker-compose.yaml").write_text(compose)
    found = read_tasks(str(tmp_path), nothing)
    assert [task.name for task in found.tasks] == ["good"]
    assert len(found.broken) == 1 and said in found.broken[0]


@pytest.mark.parametrize(
    ("dockerfile", "workdir"),
    [
        ("FROM a\nWORKDIR /x/\nWORKDIR y\n", "/x/y"),
        ("FROM a\nWORKDIR /x\nFROM b\n", None),
        ("FROM a\nARG A=/x\nWORKDIR $A\n", None),
        ('FROM a\nworkdir \\\n  "/x"\n', "/x"),
        ("FROM a\nWORKDIR y\n", None),
    ],
)
def test_the_last_working_directory_of_a_dockerfile_is_known(
    tmp_path: Path, dockerfile: str, workdir: str | None
) -> None:
    folder = make_task(tmp_path / "task", "")
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").write_text(dockerfile)
    assert read_task(folder, nothing).dockerfile_workdir == workdir


def test_an_image_that_works_where_the_tests_go_is_refused_before_it_is_built(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", "")
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").write_text("FROM a\nWORKDIR /tests\n")
    assert read_tasks(str(tmp_path), nothing).broken == (
        "task task: workdir: /tests is emptied before the tests run",
    )


def test_without_containers_a_workdir_in_the_system_is_named(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", f'{IMAGE}workdir = "/usr/src/app"')
    with pytest.raises(InvalidInput, match=r"without containers: its workdir \('/usr/src/app' can't be"):
        local_sandbox(read_task(folder, nothing))
