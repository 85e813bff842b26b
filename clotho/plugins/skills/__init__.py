"""The tools that find, read and write skills: instructions for kinds of work."""

from clotho.plugin import Plugin

PLUGIN = Plugin(
    "skills",
    run_settings="clotho.plugins.skills.settings:SkillsSettings",
    tools=(
        "clotho.plugins.skills.skill_manage:SkillManage",
        "clotho.plugins.skills.skill_view:SkillView",
        "clotho.plugins.skills.skills_list:SkillsList",
    ),
)
