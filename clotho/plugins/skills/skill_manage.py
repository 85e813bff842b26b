"""The `skill_manage` tool: writes skills of the rollout's own, which no other rollout sees."""

import asyncio
import json
from typing import Any

from clotho.errors import InvalidInput
from clotho.plugins.skills.library import (
    MAIN,
    MOST_CHANGED_CHARS,
    MOST_FILE_CHARS,
    MOST_FILES,
    NAME,
    NOT_CONFIGURED,
    SLOT,
    Changed,
    Library,
    changes,
    library,
    require_path,
    require_skill,
)
from clotho.plugins.skills.settings import SkillsSettings
from clotho.tools.results import text
from clotho.tools.schemas import boolean, object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

ACTIONS = ("create", "edit", "patch", "delete", "write_file", "remove_file")


class SkillManage(Tool):
    name = "skill_manage"
    toolset = "skills"
    sandboxed = False
    description = (
        "Keep what you have learned as a skill, for later in this task: create one with its whole SKILL.md, edit "
        "it with a whole new one, patch a text in it, delete it, or write and remove further files of it."
    )
    parameters = object_schema(
        "action",
        "name",
        action=string("What to do", one_of=ACTIONS),
        name=string("The skill's name: lower-case letters, digits, `-`, `_` and `.`"),
        content=string(
            f"For create and edit: the whole {MAIN}, with a name and a description in its front matter"
        ),
        category=string("For create: a category to list it under"),
        file_path=string(
            f"For write_file and remove_file, and for patch by default {MAIN}: a file of the skill"
        ),
        file_content=string("For write_file: the file's text"),
        old_string=string("For patch: the text to replace, which occurs once"),
        new_string=string("For patch: what replaces it"),
        replace_all=boolean("For patch: replace every occurrence", default=False),
    )

    def missing(self, settings: ToolSettings) -> str | None:
        return NOT_CONFIGURED if settings.of(SkillsSettings) is None else None

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await asyncio.to_thread(_managed, arguments, context)


def _managed(arguments: Arguments, context: CallContext) -> ToolOutcome:
    name, action = arguments["name"], arguments["action"]
    skills = library(context.settings, context.state)
    changed = _changed(action, name, arguments, skills)
    kept = {each: value and value.model_dump() for each, value in changes(context.state).items()}
    kept[name] = changed and changed.model_dump()
    if len(json.dumps(kept)) > MOST_CHANGED_CHARS:
        raise InvalidInput(f"All your skills together may have {MOST_CHANGED_CHARS:,} characters")
    return ToolOutcome(content=text(success=True, action=action, name=name), state={SLOT: kept})


def _changed(action: str, name: str, arguments: Arguments, skills: Library) -> Changed | None:
    """The skill after the action; None once it is deleted. Raises InvalidInput for what can't be done."""
    if action == "create":
        return _created(name, arguments, skills)
    if name not in skills:
        raise InvalidInput(f"There is no skill {name[:100]!r}")
    if action == "delete":
        return None
    skill = skills[name].copied()
    files = dict(skill.files)
    if action == "edit":
        files[MAIN] = _given(arguments, "content")
    elif action == "patch":
        path = require_path(arguments.get("file_path") or MAIN)
        files[path] = _patched(files.get(path), arguments)
    elif action == "write_file":
        files[require_path(_given(arguments, "file_path"))] = _given(arguments, "file_content")
    elif files.pop(path := require_path(_given(arguments, "file_path")), None) is None:
        raise InvalidInput(f"The skill has no file {path!r}")
    return _checked(Changed(category=skill.category, files=files))


def _created(name: str, arguments: Arguments, skills: Library) -> Changed:
    if not NAME.fullmatch(name):
        raise InvalidInput("A skill's name has lower-case letters, digits, `-`, `_` and `.`, at most 64")
    if name in skills:
        raise InvalidInput(f"There is a skill {name!r} already: edit or patch it")
    category = arguments.get("category") or ""
    if category and not NAME.fullmatch(category):
        raise InvalidInput("A category has lower-case letters, digits, `-`, `_` and `.`, at most 64")
    return _checked(Changed(category=category, files={MAIN: _given(arguments, "content")}))


def _checked(changed: Changed) -> Changed:
    require_skill(changed.files.get(MAIN, ""))
    if len(changed.files) > MOST_FILES:
        raise InvalidInput(f"A skill may have {MOST_FILES} files")
    if any(len(content) > MOST_FILE_CHARS for content in changed.files.values()):
        raise InvalidInput(f"A file of a skill may have {MOST_FILE_CHARS:,} characters")
    return changed


def _patched(content: str | None, arguments: Arguments) -> str:
    old, new = _given(arguments, "old_string"), arguments.get("new_string", "")
    found = 0 if content is None else content.count(old)
    if content is None or not found:
        raise InvalidInput("old_string isn't there: view the skill, and copy it exactly")
    if found > 1 and not arguments.get("replace_all", False):
        raise InvalidInput(f"old_string occurs {found} times: give more of the text, or replace_all")
    # before replacing: a letter may occur 100,000 times, and each become a long text
    if len(content) + found * (len(new) - len(old)) > MOST_FILE_CHARS:
        raise InvalidInput(f"A file of a skill may have {MOST_FILE_CHARS:,} characters")
    return content.replace(old, new)


def _given(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not value:
        raise InvalidInput(f"{arguments['action']} needs {name}")
    return str(value)
