"""Skills of a folder, a rollout's own changes to them, and questions that the settings answer."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext
from clotho.errors import ServiceRejected
from clotho.plugins.skills.library import MOST_CHANGED_CHARS, MOST_FILE_CHARS
from clotho.testing import ScriptedCall, sandboxed_context
from clotho.tools.dispatch import Dispatcher
from clotho.tools.tool import CallContext, Dispatched, ToolSettings
from tests.tools.calls import REGISTRY, fields
from tests.tools.rows import SKILL

SKILLS = str(Path(__file__).parent / "skills")


class Rollout:
    """Calls of a rollout, each with the state that the earlier ones left."""

    def __init__(self, skills: str | None = SKILLS) -> None:
        plugins = {"skills": {"folder": skills}} if skills is not None else {}
        self.settings = ToolSettings.model_validate({"plugins": plugins})
        self.state: dict[str, Any] = {}

    async def call(self, tool: str, /, **arguments: Any) -> Dispatched:
        context = CallContext("r", ("call", "0"), "call", self.settings, self.state, None)
        dispatcher = Dispatcher(REGISTRY, lambda name: None)
        done = await dispatcher.run(tool, json.dumps(arguments), REGISTRY.names, context)
        self.state = {**self.state, **json.loads(json.dumps(done.state))}
        return done

    async def manage(self, action: str, name: str, **arguments: Any) -> dict[str, Any]:
        return fields(await self.call("skill_manage", action=action, name=name, **arguments))

    async def view(self, name: str, path: str | None = None) -> dict[str, Any]:
        return fields(await self.call("skill_view", name=name, file_path=path))

    async def names(self) -> list[str]:
        return [skill["name"] for skill in fields(await self.call("skills_list"))["skills"]]


async def test_skills_are_listed_with_their_categories_and_read() -> None:
    rollout = Rollout()
    found = fields(await rollout.call("skills_list"))
    assert found == {
        "success": True,
        "skills": [
            {"name": "counting", "description": "Count things without losing count.", "category": None},
            {
                "name": "spinning",
                "description": "Spin thread of wool that does not break.",
                "category": "craft",
            },
        ],
        "categories": ["craft"],
        "count": 2,
    }
    assert fields(await rollout.call("skills_list", category="craft"))["count"] == 1
    shown = await rollout.view("spinning")
    assert "Twist while you draw" in shown["content"] and shown["linked_files"] == ["references/wool.md"]
    assert (await rollout.view("spinning", "references/wool.md"))["content"].startswith("# Wool")


async def test_changes_belong_to_the_rollout_alone(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(SKILLS, tmp_path / "skills"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    rollout, other = Rollout(str(folder)), Rollout(str(folder))
    assert (await rollout.manage("create", "knots", content=SKILL, category="craft"))["success"]
    assert (await rollout.manage("patch", "knots", old_string="both ends", new_string="one end"))["success"]
    assert (await rollout.manage("patch", "spinning", old_string="Twist", new_string="Turn"))["success"]
    note = {"file_path": "notes/flax.md", "file_content": "Wet it."}
    assert (await rollout.manage("write_file", "spinning", **note))["success"]
    assert (await rollout.manage("remove_file", "spinning", file_path="references/wool.md"))["success"]
    assert (await rollout.manage("delete", "counting"))["success"]
    assert await rollout.names() == ["knots", "spinning"]
    assert "Pull one end." in (await rollout.view("knots"))["content"]
    spinning = await rollout.view("spinning")
    assert "Turn while you draw" in spinning["content"] and spinning["linked_files"] == ["notes/flax.md"]
    assert (await rollout.manage("edit", "spinning", content=SKILL))["success"]
    assert (await rollout.view("spinning", "notes/flax.md"))["content"] == "Wet it."
    assert await other.names() == ["counting", "spinning"]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("action", "arguments", "told"),
    [
        ("create", {"name": "spinning", "content": SKILL}, "already"),
        ("create", {"name": "../knots", "content": SKILL}, "name has"),
        ("create", {"name": "knots", "content": SKILL, "category": "a/b"}, "category has"),
        ("create", {"name": "knots"}, "needs content"),
        ("create", {"name": "knots", "content": "Pull."}, "front matter"),
        ("create", {"name": "knots", "content": "---\nname: knots\n---\nPull."}, "Missing: description"),
        ("create", {"name": "knots", "content": f"---\n{'[' * 5_000}\n---\nPull."}, "front matter"),
        ("create", {"name": "knots", "content": SKILL + "x" * MOST_FILE_CHARS}, "characters"),
        ("edit", {"name": "none", "content": SKILL}, "no skill"),
        ("patch", {"name": "spinning", "old_string": "absent", "new_string": ""}, "isn't there"),
        ("patch", {"name": "spinning", "old_string": "n", "new_string": ""}, "occurs"),
        ("patch", {"name": "spinning", "old_string": "---\nname", "new_string": ""}, "front matter"),
        ("write_file", {"name": "spinning", "file_path": "../x", "file_content": "x"}, "no path inside"),
        ("write_file", {"name": "spinning", "file_path": "/etc/x", "file_content": "x"}, "no path inside"),
        ("remove_file", {"name": "spinning", "file_path": "none"}, "no file"),
        ("remove_file", {"name": "spinning", "file_path": "SKILL.md"}, "front matter"),
    ],
)
async def test_a_change_that_cannot_be_made_is_told(
    action: str, arguments: dict[str, Any], told: str
) -> None:
    rollout = Rollout()
    assert told in (await rollout.manage(action, **arguments))["error"]
    assert rollout.state == {}


async def test_changes_are_bounded_together() -> None:
    rollout = Rollout()
    content = SKILL + "x" * (MOST_FILE_CHARS - len(SKILL))
    for number in range(MOST_CHANGED_CHARS // MOST_FILE_CHARS):
        assert (await rollout.manage("create", f"large-{number}", content=content))["success"]
    assert "together" in (await rollout.manage("create", "one-more", content=content))["error"]


@pytest.mark.parametrize("path", ["../counting/SKILL.md", "/etc/passwd", "link", "references/../../../../x"])
async def test_nothing_outside_a_skill_is_read(tmp_path: Path, path: str) -> None:
    folder = Path(shutil.copytree(SKILLS, tmp_path / "skills"))
    (folder / "craft" / "spinning" / "link").symlink_to("/etc/passwd")
    found = await Rollout(str(folder)).view("spinning", path)
    assert found["error"] and "root:" not in json.dumps(found)


async def test_a_folder_that_is_missing_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(ServiceRejected, match=r"set skills\.folder"):
        await Rollout(None).names()
    with pytest.raises(ServiceRejected, match="isn't there"):
        await Rollout(str(tmp_path / "none")).names()


async def test_a_question_is_answered_as_the_run_says() -> None:
    rollout = Rollout()
    asked = {"question": "Wool or flax?", "choices": ["wool", " "]}
    assert fields(await rollout.call("clarify", **asked)) == {
        "question": "Wool or flax?",
        "choices_offered": ["wool"],
        "user_response": "Use your judgement.",
    }
    rollout.settings = ToolSettings(plugins={"services": {"clarify_text": "Wool."}})
    assert fields(await rollout.call("clarify", question="Which?"))["user_response"] == "Wool."
    assert "empty" in fields(await rollout.call("clarify", question=" "))["error"]


@pytest.mark.parametrize("tool", ["memory", "session_search"])
async def test_what_passes_knowledge_between_sessions_is_not_available(tool: str) -> None:
    done = await Rollout().call(tool, action="add")
    assert "not available in RL environments" in fields(done)["error"] and done.failure is not None


class Skilled(Environment):
    """A task that says where its skills are, and what its user answers."""

    async def get_next_item(self) -> Item | None:
        return {"prompt": "Spin."}

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float("Twist" in json.loads(ctx.call_tool("skill_view", {"name": "spinning"}))["content"])


def test_an_environment_names_its_skills() -> None:
    config = EnvironmentConfig(
        enabled_toolsets=("skills", "clarify"),
        plugins={"skills": {"folder": SKILLS}, "services": {"clarify_text": "Of wool."}},
    )
    with sandboxed_context(Skilled(config)) as task:
        for name, arguments in (("skills_list", "{}"), ("clarify", '{"question": "Of what?"}')):
            task.play(ScriptedCall(name=name, arguments=arguments))
        assert "spinning" in str(task.result.messages) and "Of wool." in str(task.result.messages)
        assert task.reward().score == 1.0
