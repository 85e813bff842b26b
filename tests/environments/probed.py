"""The one-file environment in sandboxes with a healthcheck: one waits for a file, one is broken by others."""

from clotho.environment import Item
from clotho.sandbox.healthcheck import Healthcheck
from clotho.sandbox.item import ItemSandbox
from tests.environments.one_file import OneFile

PROBE = "echo probe >> /work/probes; touch /work/probing; while [ ! -e /work/go ]; do sleep 0.05; done"
BREAKABLE = "test ! -e /work/broken && { test ! -e /work/filling || head -c 1G /dev/zero; }"


def check(command: str) -> Healthcheck:
    return Healthcheck(
        command=command, interval=0.1, timeout=600, start_period=0, start_interval=0.1, retries=1
    )


class Probed(OneFile):
    def sandbox(self, item: Item) -> ItemSandbox:
        return ItemSandbox(healthcheck=check(PROBE))


class Breakable(OneFile):
    def sandbox(self, item: Item) -> ItemSandbox:
        return ItemSandbox(healthcheck=check(BREAKABLE), disk_mb=40)
