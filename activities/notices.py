"""The activities that send a run's notices: each hook of a plugin is told when a run paused itself or ended.

The workflow that calls them is `GiveNotice` (workflows/notices.py); `Notices` there says when. A hook is a function
that a plugin names (`Plugin.hooks`), such as `tell_web_hook` of clotho/plugins/notices.
"""

from temporalio import activity

from activities.guard import activity_guard
from clotho.config import Settings
from clotho.errors import HostUnavailable
from clotho.plugin import load, plugins
from clotho.rollouts.notice import HookCall


class Hooks:
    """Activities of the environment's queue."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @activity.defn
    async def list_hooks(self, run: str) -> list[str]:
        """The names of the hooks that plugins have here, each after its plugin's."""
        async with activity_guard(run):
            return [f"{name}.{hook}" for name, plugin in plugins().items() for hook in plugin.hooks]

    @activity.defn
    async def call_hook(self, call: HookCall) -> None:
        async with activity_guard(call.notice.run):
            name, _, hook = call.hook.partition(".")
            plugin = plugins().get(name)
            if plugin is None or hook not in plugin.hooks:
                # retried, since another host may have the plugin
                raise HostUnavailable(f"the hook {call.hook} of this run isn't installed on this host")
            await load(plugin.hooks[hook])(call.notice, self._settings)
