"""The parts of the schema that Clotho doesn't do: a task that uses one is refused by its name."""

from collections.abc import Iterator

from clotho.plugins.task_folders.task_file import SERVICE, Agent, Container, TaskFile, Verifier
from clotho.templates import TEMPLATE


def unsupported(task: TaskFile) -> Iterator[str]:
    """One sentence for each part of `task` that Clotho would have to leave out."""
    if task.steps:
        yield "steps: tasks of several steps aren't supported"
    if task.multi_step_reward_strategy is not None:
        yield "multi_step_reward_strategy: tasks of several steps aren't supported"
    if any(not isinstance(each, str) and each.service not in (None, SERVICE) for each in task.artifacts):
        yield f"artifacts.service: there is no service but {SERVICE}"
    yield from _of_container(task.environment, "environment")
    if task.verifier.separate:
        if task.verifier.environment is not None:
            yield from _of_container(task.verifier.environment, "verifier.environment")
    else:
        if task.grading_network != task.agent_network:
            named = "verifier" if task.verifier.network_mode is not None else "agent"
            yield f"{named}.network_mode: agent and tests have one network, unless the verifier is separate"
        if task.verifier.user not in (None, task.agent.user):
            yield "verifier.user: it must be agent.user, since a sandbox has one user"
    for name, phase in (("agent", task.agent), ("verifier", task.verifier)):
        if phase.network_mode == "allowlist":
            yield f"{name}.network_mode: hosts can't be chosen"
    if any(TEMPLATE.fullmatch(value) for value in task.solution.env.values()):
        yield "solution.env: its values would be journalled; put variables into [environment] env"
    yield from _of_verifier(task.verifier, task.agent)


def _of_container(container: Container, table: str) -> Iterator[str]:
    if container.os != "linux":
        yield f"{table}.os: {container.os} containers aren't supported"
    if container.gpu_types:
        yield f"{table}.gpu_types: kinds of GPU can't be chosen"
    if container.tpu is not None:
        yield f"{table}.tpu: there are no TPUs"
    if container.mcp_servers:
        yield f"{table}.mcp_servers: agents have no MCP client"
    if container.skills_dir:
        yield f"{table}.skills_dir: agents have no skills"
    if container.network == "allowlist":
        yield f"{table}.network_mode: hosts can't be chosen"


def _of_verifier(verifier: Verifier, agent: Agent) -> Iterator[str]:
    if any(each.service != SERVICE for each in verifier.collect):
        yield f"verifier.collect.service: there is no service but {SERVICE}"
    if any(each.user not in (None, agent.user) for each in verifier.collect):
        yield "verifier.collect.user: it must be agent.user, since a sandbox has one user"
