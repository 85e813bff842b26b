"""The chart: as Helm renders it, and what it tells Clotho and Kubernetes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from clotho.rollouts.task_queues import TaskQueues
from clotho.worker_settings import HealthSettings, MetricsSettings, WorkerSettings
from tests.cli.command import Finished, run
from tests.deploy.clotho_part import check_command, check_variables
from tests.deploy.helm import helm_program
from tests.docs.test_docs_refer_to_things_that_exist import programs

__all__ = ["programs"]

pytestmark = pytest.mark.slow  # a build of Helm takes minutes, once per user
CHART = Path("deploy/helm/clotho")
ROLES = ("llm", "tools", "workflows")
KUBERNETES = ("--kube-version", "1.33.0")
"""A Helm that is built as a module knows of none but an old version."""
Object = dict[str, Any]
SECRETS = (
    "--set=roles.llm.secret=model-keys",
    "--set=store.secret=store-keys",
    "--set=temporal.secret=temporal-keys",
)


@pytest.fixture(scope="module")
async def helm() -> Path:
    program = await helm_program()
    if program is None:
        pytest.skip("there is no Helm: put helm on PATH, or install Go so that it can be built")
    return program


async def rendered(helm: Path, *settings: str) -> list[Object]:
    done = await template(helm, *settings)
    assert done.status == 0, done.error
    return [each for each in yaml.safe_load_all(done.output) if each is not None]


async def template(helm: Path, *settings: str) -> Finished:
    return await run(helm, "template", "clotho", CHART, *KUBERNETES, *settings)


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def worker(workload: Object) -> Object:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    found: Object = container
    return found


def variables(container: Object) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in container["env"]}


async def test_lint_finds_nothing(helm: Path) -> None:
    done = await run(helm, "lint", "--strict", CHART, *KUBERNETES)
    assert done.status == 0, done.output
    assert "[WARNING]" not in done.output and "[ERROR]" not in done.output


async def test_each_role_is_what_clotho_takes(helm: Path, programs: dict[str, Any]) -> None:
    workloads = of_kind(await rendered(helm), "StatefulSet")
    assert set(workloads) == {f"clotho-{role}-v1" for role in ROLES}
    for role in ROLES:
        workload = workloads[f"clotho-{role}-v1"]
        container, pod = worker(workload), workload["spec"]["template"]["spec"]
        check_variables(variables(container))
        check_command(programs, container["args"])
        assert container["args"][-1] == role
        assert variables(container)["CLOTHO_WORKER__BUILD_ID"] == "v1"
        drain = float(variables(container)["CLOTHO_WORKER__DRAIN_SECONDS"])
        assert drain == WorkerSettings().drain_seconds
        assert pod["terminationGracePeriodSeconds"] >= drain + 30
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"metrics": MetricsSettings().port, "health": HealthSettings().port}
        probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
        assert [(probe["path"], probe["port"]) for probe in probes] == [
            ("/healthz", "health"),
            ("/healthz", "health"),
            ("/readyz", "health"),
        ]
        assert set(workload["spec"]["selector"]["matchLabels"].items()) <= set(
            workload["spec"]["template"]["metadata"]["labels"].items()
        )


async def test_versions_are_beside_each_other_and_the_first_is_made_current(
    helm: Path, programs: dict[str, Any]
) -> None:
    objects = await rendered(helm, "--set", "versions={v2.0,v1}")
    workloads = of_kind(objects, "StatefulSet")
    assert set(workloads) == {f"clotho-{role}-{version}" for role in ROLES for version in ("v2-0", "v1")}
    selectors = [
        tuple(sorted(each["spec"]["selector"]["matchLabels"].items())) for each in workloads.values()
    ]
    assert len(set(selectors)) == len(selectors) == len(of_kind(objects, "PodDisruptionBudget"))
    assert worker(workloads["clotho-llm-v2-0"])["image"].endswith(":v2.0")
    (job,) = of_kind(objects, "Job").values()
    assert worker(job)["args"] == ["deploy", "v2.0"]
    check_command(programs, worker(job)["args"])
    check_variables(variables(worker(job)))


async def test_queues_that_scale_are_those_of_the_roles(helm: Path) -> None:
    objects = await rendered(helm, "--set", "autoscaling.enabled=true", *SECRETS)
    scaled = of_kind(objects, "ScaledObject")
    asked = {name: [each["metadata"] for each in one["spec"]["triggers"]] for name, one in scaled.items()}
    queues = TaskQueues()
    assert {name: [each["taskQueue"] for each in found] for name, found in asked.items()} == {
        "clotho-llm-v1": [queues.model.queue],
        "clotho-tools-v1": [queues.sandbox.queue, queues.environment.queue],
        "clotho-workflows-v1": [queues.workflows],
    }
    for found in asked.values():
        assert {each["workerDeploymentBuildId"] for each in found} == {"v1"}
        assert {each["workerDeploymentName"] for each in found} == {WorkerSettings().deployment}
    assert all("replicas" not in each["spec"] for each in of_kind(objects, "StatefulSet").values())
    assert of_kind(objects, "TriggerAuthentication")


async def test_secrets_are_named_and_only_the_llm_role_has_the_models_keys(helm: Path) -> None:
    objects = await rendered(helm, *SECRETS)
    names = {
        name: [each["secretRef"]["name"] for each in worker(workload)["envFrom"]]
        for name, workload in of_kind(objects, "StatefulSet").items()
    }
    shared = ["temporal-keys", "store-keys"]
    assert names == {
        "clotho-llm-v1": [*shared, "model-keys"],
        "clotho-tools-v1": shared,
        "clotho-workflows-v1": shared,
    }
    assert not of_kind(objects, "Secret")


async def test_no_role_but_tools_has_root_and_tools_has_what_it_was_given(helm: Path) -> None:
    kinds = ("privileged", "userNamespaces", "engine")
    found = await asyncio.gather(*(rendered(helm, "--set", f"roles.tools.security={kind}") for kind in kinds))
    pods = {
        kind: {name: one["spec"]["template"]["spec"] for name, one in of_kind(objects, "StatefulSet").items()}
        for kind, objects in zip(kinds, found, strict=True)
    }
    for of in pods.values():
        for role in ("llm", "workflows"):
            context = of[f"clotho-{role}-v1"]["containers"][0]["securityContext"]
            assert context["runAsNonRoot"] and context["capabilities"] == {"drop": ["ALL"]}
    tools = {kind: of["clotho-tools-v1"] for kind, of in pods.items()}
    assert tools["privileged"]["containers"][0]["securityContext"]["privileged"] is True
    unprivileged = tools["userNamespaces"]
    assert unprivileged["hostUsers"] is False
    assert unprivileged["containers"][0]["securityContext"]["procMount"] == "Unmasked"
    engine = tools["engine"]["containers"][0]
    assert "privileged" not in engine["securityContext"]
    address = variables(engine)["CLOTHO_PLUGINS__CONTAINERS__DOCKER_HOST"]
    assert address.removeprefix("unix://") in [each["mountPath"] for each in engine["volumeMounts"]]
    check_variables(variables(engine))


@pytest.mark.parametrize(
    "setting",
    [
        "versions={a/b}",
        "versions={}",
        "roles.cook.replicas=1",
        "roles.tools.security=some",
        "drainSeconds=-1",
    ],
)
async def test_values_that_make_no_workers_are_refused(helm: Path, setting: str) -> None:
    assert (await template(helm, "--set", setting)).status != 0
