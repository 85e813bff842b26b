"""The `skill_view` tool: the text of a skill, or of one of its files."""

import asyncio

from clotho.plugins.skills.library import MAIN, NOT_CONFIGURED, library, require_path
from clotho.plugins.skills.settings import SkillsSettings
from clotho.tools.results import answer, problem
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

MOST_NAMED = 50


class SkillView(Tool):
    name = "skill_view"
    toolset = "skills"
    sandboxed = False
    changes_workspace = False
    description = "Read a skill's instructions, or with file_path one of the files that belong to it."
    parameters = object_schema(
        "name",
        name=string("The skill's name, as skills_list shows it"),
        file_path=string(f"A file of the skill, such as references/api.md. By default {MAIN}"),
    )

    def missing(self, settings: ToolSettings) -> str | None:
        return NOT_CONFIGURED if settings.of(SkillsSettings) is None else None

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await asyncio.to_thread(_shown, arguments, context)


def _shown(arguments: Arguments, context: CallContext) -> ToolOutcome:
    skills = library(context.settings, context.state)
    name, path = arguments["name"], require_path(arguments.get("file_path") or MAIN)
    if name not in skills:
        known = list(skills)[:MOST_NAMED]
        return problem(f"There is no skill {name[:100]!r}", success=False, available_skills=known)
    skill = skills[name]
    content = skill.read(path)
    if content is None:
        return problem(f"The skill has no file {path!r}", success=False, available_files=skill.files())
    linked = [each for each in skill.files() if each != MAIN]
    return answer(
        success=True,
        name=name,
        description=skill.description,
        file=path,
        content=content,
        **({"linked_files": linked} if path == MAIN else {}),
    )
