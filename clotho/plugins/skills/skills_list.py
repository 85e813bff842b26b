"""The `skills_list` tool: names and descriptions of the rollout's skills."""

import asyncio

from clotho.plugins.skills.library import NOT_CONFIGURED, library
from clotho.plugins.skills.settings import SkillsSettings
from clotho.tools.results import answer
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings


class SkillsList(Tool):
    name = "skills_list"
    toolset = "skills"
    sandboxed = False
    changes_workspace = False
    description = (
        "List the skills: instructions for kinds of work, each with its name and description. Read one with "
        "skill_view before you do work of its kind."
    )
    parameters = object_schema(category=string("List only the skills of this category"))

    def missing(self, settings: ToolSettings) -> str | None:
        return NOT_CONFIGURED if settings.of(SkillsSettings) is None else None

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await asyncio.to_thread(_listed, arguments.get("category"), context)


def _listed(category: str | None, context: CallContext) -> ToolOutcome:
    skills = list(library(context.settings, context.state).values())
    shown = [
        {"name": skill.name, "description": skill.description, "category": skill.category or None}
        for skill in skills
        if not category or skill.category == category
    ]
    categories = sorted({skill.category for skill in skills if skill.category})
    return answer(success=True, skills=shown, categories=categories, count=len(shown))
