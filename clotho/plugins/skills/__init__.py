"""The tools that find, read and write skills: instructions for kinds of work.

Only a rollout's agent may write a skill, with the tool `skill_manage` (`SkillManage.run`), where the run offers
it. It writes into its rollout's own state: other rollouts and the run's folder never see it (`library`).
"""

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
