"""The one-file environment in sandboxes with a healthcheck that waits for the file /work/go."""

from clotho.environment import Item
from clotho.sandbox.healthcheck import Healthcheck
from clotho.sandbox.item import ItemSandbox
from tests.environments.one_file import OneFile

PROBE = "echo probe >> /work/probes; touch /work/probing; while [ ! -e /work/go ]; do sleep 0.05; done"


class Probed(OneFile):
    def sandbox(self, item: Item) -> ItemSandbox:
        check = Healthcheck(
            command=PROBE, interval=0.1, timeout=600, start_period=0, start_interval=0.1, retries=1
        )
        return ItemSandbox(healthcheck=check)
