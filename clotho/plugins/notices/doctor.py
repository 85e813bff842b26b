"""Checks of notices: their settings on this machine, and the notices that fail now.

Nothing is run or sent. Secrets aren't shown.
"""

import shutil
from collections.abc import Callable

from temporalio.client import Client

from clotho.cli.doctor.findings import Examination, Finding
from clotho.config import secret
from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.plugins.notices.failing import failing_notices
from clotho.plugins.notices.sending import web_hook
from clotho.plugins.notices.settings import NotifySettings
from clotho.runs.manifest import list_runs

MEND = "mend plugins.notices in clotho.yaml, for every worker with the role tools"


async def examine(examination: Examination) -> list[Finding]:
    found = notice_settings(examination.settings.of(NotifySettings))
    if examination.client is not None and examination.journal is not None:
        found += await given_notices(examination.client, examination.journal)
    return found


def notice_settings(settings: NotifySettings) -> list[Finding]:
    """The command and the web hook, and what is wrong with them here."""
    found = []
    if settings.command:
        found.append(_command(settings.command[0]))
    if (variable := settings.webhook_variable) is not None:
        found.append(_variable(f"web hook: {variable}", lambda: web_hook(variable)))
    if (token := settings.webhook_token_variable) is not None:
        if settings.webhook_variable is None:
            found.append(Finding("web hook: it has a token and no URL: nothing is sent", MEND))
        else:
            found.append(
                _variable(f"web hook's token: {token}", lambda: secret(token, "the web hook's token"))
            )
    return found or [Finding("none are asked for (plugins.notices)")]


async def given_notices(client: Client, journal: Journal) -> list[Finding]:
    """The notices of the store's runs that fail."""
    lines = await failing_notices(client, await list_runs(journal))
    return [Finding(line, "mend that; those that were given up aren't given any more") for line in lines]


def _command(program: str) -> Finding:
    if not program:
        return Finding("command: it names no program", MEND)
    if (found := shutil.which(program)) is None:
        return Finding(f"command: {program} is no program that can be run here", MEND)
    return Finding(f"command: {found}")


def _variable(what: str, read: Callable[[], object]) -> Finding:
    try:
        read()
    except InvalidInput as error:
        return Finding(f"{what}: {error}", "set it where workers with the role tools are started")
    return Finding(f"{what} is set here")
