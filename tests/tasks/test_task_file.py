"""task.toml: every key is honoured, or refused by its name."""

from pathlib import Path

import pytest

from clotho.errors import InvalidInput
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.task_folders.folder import Task, read_task
from clotho.plugins.task_folders.sandboxes import container_sandbox, grading_sandbox
from tests.tasks.making import IMAGE, make_task

VARIABLES = {"SET": "given", "EMPTY": ""}


def read(folder: Path, file: str = IMAGE) -> Task:
    return read_task(make_task(folder, file), VARIABLES.get)


WHOLE = """
schema_version = "1.4"
source = "here"
[metadata]
difficulty = "easy"
tags = ["a"]
[task]
name = "org/name"
keywords = ["k"]
authors = [{name = "A", email = "a@example.org"}]
[agent]
timeout_sec = 30
user = 1000
[verifier]
timeout_sec = 5.5
user = 1000
env = {KEY = "${SET}", OTHER = "${UNSET:-x}"}
[environment]
docker_image = "debian"
build_timeout_sec = 60
cpus = 0.5
memory = "2G"
storage_mb = 512
workdir = "/app"
gpus = 0
network_mode = "public"
env = {A = "literal ${SET}"}
[solution]
env = {B = "x"}
"""


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    task = read(tmp_path / "folder", WHOLE)
    environment = task.file.environment
    assert (task.name, task.file.agent.user, task.file.agent.timeout_sec) == ("org/name", "1000", 30.0)
    assert (environment.memory_limit_mb, environment.storage_limit_mb, environment.cpus) == (2048, 512, 0.5)


def test_an_empty_file_has_the_defaults_of_the_schema(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "plain", "")
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").write_text("FROM busybox\n")
    task = read_task(folder, VARIABLES.get)
    assert (task.name, task.image, task.file.verifier.timeout_sec) == ("plain", None, 600.0)
    assert (task.file.agent.timeout_sec, task.file.environment.network) == (None, None)


@pytest.mark.parametrize(
    ("key", "mode"),
    [("true", "public"), ("false", "no-network"), ('true\nnetwork_mode = "no-network"', "no-network")],
)
def test_the_older_network_key_is_read(tmp_path: Path, key: str, mode: str) -> None:
    assert read(tmp_path / "task", f"{IMAGE}allow_internet = {key}\n").file.environment.network == mode


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("schema_version = 1.0", "schema_version: Input should be a valid string"),
        ('schema_version = "two"', "schema_version: String should match"),
        ('version = "two"', "version: String should match"),
        ("[agent]\ntimeout = 5", "agent.timeout: unknown key; did you mean timeout_sec?"),
        ("[environment.healthcheck]\ncommand = 'x'\nretry = 1", "environment.healthcheck.retry: unknown key"),
        (
            "[[verifier.collect]]\ncommand = 'x'\nusers = 1",
            "verifier.collect.0.users: unknown key; did you mean",
        ),
        ("nonsense = 1", "nonsense: unknown key"),
        (
            "[environment]\nmemory = 2048",
            'environment.memory: give a number with K, M or G as text, such as "2G"',
        ),
        ('[environment]\nmemory = "2Gi"', "environment.memory: give a number with K"),
        (
            '[environment]\nmemory = "2G"\nmemory_mb = 5',
            "environment: memory_mb and memory are 5 and 2048 MiB: give one of them",
        ),
        ("[environment]\ncpus = true", "environment.cpus"),
        ("[environment]\nenv = {A = 1}", "environment.env.A: Input should be a valid string"),
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec: give a finite number of seconds above 0"),
        ("[verifier]\ntimeout_sec = inf", "verifier.timeout_sec: give a finite number"),
        ('[environment]\nallowed_hosts = ["a"]', "environment: allowed_hosts goes with"),
        ('[environment]\nos = "windows"', "environment.os: windows containers aren't supported"),
        ('[environment]\ngpu_types = ["H100"]', "environment.gpu_types: kinds of GPU"),
        ('[environment]\ntpu = {type = "v5", topology = "2x4"}', "environment.tpu"),
        ('[environment]\nskills_dir = "/skills"', "environment.skills_dir"),
        ('[[environment.mcp_servers]]\nname = "a"\nurl = "b"', "environment.mcp_servers"),
        ('[[steps]]\nname = "a"', "steps: tasks of several steps"),
        ('artifacts = ["/a/../b"]', "artifacts.0: give a file or folder"),
        ("a = " + "[" * 50_000, "task.toml isn't TOML: nested too deeply"),
        ('artifacts = [{source = "/"}]', "give a file or folder, without .."),
        ('artifacts = [{source = "/a", destination = "/b"}]', "give a relative path"),
        ('artifacts = [{source = "/a", service = "db"}]', "artifacts.service: there is no service but main"),
        ("[verifier.environment]\nskills_dir = '/a'", "verifier.environment.skills_dir: agents have"),
        ('[verifier.environment]\nenv = {A = "${UNSET}"}', "verifier.environment.env.A: environment"),
        ('[[verifier.collect]]\ncommand = "a"\nservice = "db"', "verifier.collect.service: there is no"),
        ('[[verifier.collect]]\ncommand = "a"\nuser = "b"', "verifier.collect.user: it must be agent.user"),
        ('[agent]\nnetwork_mode = "allowlist"', "agent.network_mode: hosts can't be chosen"),
        (
            '[environment]\nallow_internet = true\n[agent]\nnetwork_mode = "no-network"',
            "agent.network_mode: agent and tests have one network, unless the verifier is separate",
        ),
        ('[task]\nname = "plain"', "task.name: String should match"),
        ("[verifier]\nenv = {A = '${UNSET}'}", "verifier.env.A: environment variable UNSET is not set"),
        ("[environment]\nenv = {'A B' = ''}", "'A B' is no name of an environment variable"),
        ("a = [", "task.toml isn't TOML"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(tmp_path: Path, file: str, said: str) -> None:
    image = "" if "[environment]" in file or "\nenvironment" in file else f"{IMAGE}"
    whole = file.replace("[environment]", IMAGE.strip(), 1) if not image else f"{file}\n{image}"
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path / "task", whole)
    assert str(refused.value).startswith("task task: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "key",
    [
        "gpu_types = []",
        'skills_dir = ""',
        'os = "Linux"',
        'memory = "2G"\nmemory_mb = 2048',
        "cpus = 0",
        "memory_mb = 0",
        'workdir = "/"',
    ],
)
def test_values_that_ask_for_nothing_are_read(tmp_path: Path, key: str) -> None:
    asked = container_sandbox(read(tmp_path / "task", f'version = "2.0"\n{IMAGE}{key}\n'))
    assert isinstance(asked.backend, DockerConfig) and asked.backend.cpus is None


@pytest.mark.parametrize(
    ("file", "agents", "graders"),
    [
        ('[agent]\nnetwork_mode = "public"\n', "default", None),
        ('[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "no-network"\n', "none", None),
        (
            '[agent]\nnetwork_mode = "no-network"\n[verifier]\nenvironment_mode = "separate"\n'
            'network_mode = "public"\n[verifier.environment]\n',
            "none",
            "default",
        ),
        ("allow_internet = true\n[verifier.environment]\nallow_internet = false\n", "default", "none"),
        ('allow_internet = true\n[verifier]\nenvironment_mode = "separate"\n', "default", "default"),
    ],
)
def test_agent_and_separate_verifier_have_a_network_each(
    tmp_path: Path, file: str, agents: str, graders: str | None
) -> None:
    task = read(tmp_path / "task", f"{IMAGE}{file}")
    agent, grader = container_sandbox(task).backend, grading_sandbox(task)
    assert isinstance(agent, DockerConfig) and agent.network == agents
    if graders is None:
        assert grader == container_sandbox(task)
    else:
        assert isinstance(grader.backend, DockerConfig)
        assert grader.backend.network == graders


def test_gpus_are_asked_of_the_engine(tmp_path: Path) -> None:
    asked = container_sandbox(read(tmp_path / "task", f"{IMAGE}gpus = 2\n")).backend
    assert isinstance(asked, DockerConfig) and asked.gpus == 2


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path / "task", '[environment]\nos = "windows"\nskills_dir = "/a"\n')
    assert "environment.os" in str(refused.value)
    assert "environment.skills_dir" in str(refused.value)


@pytest.mark.parametrize("value", ['"yes"', "1", "[true]"])
def test_kept_services_are_true_or_false(tmp_path: Path, value: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"metadata\.clotho\.keep_services: Input should be a valid boolean"
    ):
        read(tmp_path / "task", f"{IMAGE}[metadata.clotho]\nkeep_services = {value}\n")
