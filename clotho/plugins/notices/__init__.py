"""Notices of a run's life to people: a command or a webhook."""

from clotho.plugin import Plugin

PLUGIN = Plugin(
    "notices",
    settings="clotho.plugins.notices.settings:NotifySettings",
    hooks={
        "command": "clotho.plugins.notices.sending:tell_command",
        "webhook": "clotho.plugins.notices.sending:tell_web_hook",
    },
    doctor={"notices": "clotho.plugins.notices.doctor:examine"},
    status="clotho.plugins.notices.failing:failing_notices",
)
