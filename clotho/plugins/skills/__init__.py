"""The tools that find, read and write skills: instructions for kinds of work."""

from clotho.plugin import Plugin

PLUGIN = Plugin(
    "skills",
    tools=(
        "clotho.plugins.skills.skill_manage:SkillManage",
        "clotho.plugins.skills.skill_view:SkillView",
        "clotho.plugins.skills.skills_list:SkillsList",
    ),
)
