"""Targets of operations: a run, a group or a rollout."""

import re
from dataclasses import dataclass

from clotho.errors import InvalidInput
from clotho.identifiers.ids import ADAPTER_GROUP, BEGAN, campaign_id, checked_run_name
from clotho.temporal.search_attributes import RUN

TARGET = re.compile(
    rf"(?P<run>[^/]+)(/(?P<group>g(?P<item>\d{{6,}})|{ADAPTER_GROUP})(/(?P<rollout>r\d+(\.\d+)?(~\d{{4,}}-\d{{2,}})*))?)?",
    # else \d takes digits of other scripts, which no id has
    re.ASCII,
)


@dataclass(frozen=True)
class Target:
    """A run, a group or a rollout, as its id names it."""

    run: str
    group: str | None = None
    item: int | None = None
    """The group's item, if its name is the item's number: an adapter's group has another name."""
    rollout: str | None = None

    @classmethod
    def named(cls, name: str) -> "Target":
        """The target with the id `name`; raises InvalidInput for anything that is no id."""
        found = TARGET.fullmatch(name)
        if found is None:
            raise InvalidInput(
                f"{name!r} names nothing: give RUN, RUN/GROUP or RUN/GROUP/r0, "
                "with a group such as g000000 or i-name.0, as `clotho status RUN` shows them"
            )
        run = checked_run_name(found["run"])
        group = f"{run}/{found['group']}" if found["group"] else None
        item = int(found["item"]) if found["item"] else None
        return cls(run, group, item, name if found["rollout"] else None)

    @property
    def workflow(self) -> str:
        return self.rollout or self.group or campaign_id(self.run)

    def __str__(self) -> str:
        return self.rollout or self.group or self.run


def running_rollouts(target: Target) -> str:
    """Visibility query for the running rollouts of `target`, children included."""
    query = f"{RUN} = '{target.run}' AND WorkflowType = 'Rollout' AND ExecutionStatus = 'Running'"
    if target.rollout is not None:
        children = f"WorkflowId STARTS_WITH '{target.rollout}{BEGAN}'"
        return f"{query} AND (WorkflowId = '{target.rollout}' OR {children})"
    return f"{query} AND WorkflowId STARTS_WITH '{target.group}/'" if target.group is not None else query
