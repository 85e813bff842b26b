"""Operations on runs, groups and rollouts, which the viewer offers where it was started with `--operate`."""

import asyncio
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.service import RPCError

from clotho.errors import InvalidInput, Unavailable
from clotho.journal import Journal
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.refused import Refused
from clotho.plugins.viewer.guard import is_token, new_token
from clotho.plugins.viewer.rendering import Pages
from clotho.plugins.viewer.workflows import Workflows
from clotho.runs.operations import Operations
from clotho.runs.targets import Target

ANSWER_SECONDS = 30.0
FORM = BodyLimits(sent_bytes=4_096, unpacked_bytes=4_096, seconds=5.0)
OPERATIONS = {
    "pause": "Its rollouts stop before their next turns. Calls in flight are finished.",
    "resume": "All that is paused of it goes on. Unscored groups of a run that has ended are started again.",
    "cancel": "It ends with its sandboxes, without a reward. What was scored stays.",
    "retry": "What failed or was cancelled of it is started again. What was scored stays.",
}
"""Operations on offer, and what each does."""


class Operating:
    """Confirms operations, and does them. Forms carry a token that only this process's pages have."""

    def __init__(self, journal: Journal, workflows: Workflows, pages: Pages) -> None:
        self._journal = journal
        self._workflows = workflows
        self._pages = pages
        self._token = new_token()
        self._bodies = Bodies(FORM)

    def routes(self) -> list[Route]:
        return [
            Route("/confirm/{operation}/{name:path}", self.confirm),
            Route("/operate", self.operate, methods=["POST"]),
        ]

    async def confirm(self, request: Request) -> Response:
        operation, target = _order(request.path_params)
        return self._pages.answer(
            "confirm.html",
            operation=operation,
            target=target,
            meaning=OPERATIONS[operation],
            token=self._token,
        )

    async def operate(self, request: Request) -> Response:
        try:
            async with self._bodies.body(request.headers, request.receive) as body:
                fields = {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
        except Refused as refused:
            return self._pages.answer("error.html", refused.status, message=str(refused.detail))
        if not is_token(fields.get("token", ""), self._token):
            message = "This form is not from the viewer that runs now: go back, and load the page again."
            return self._pages.answer("error.html", 403, message=message)
        operation, target = _order(fields)
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS):  # the client itself tries again for ever
                said = await self._done(operation, target)
        except InvalidInput as refused_by_state:
            return self._pages.answer("error.html", 409, message=str(refused_by_state))
        except (RPCError, TimeoutError) as error:
            raise Unavailable(f"Temporal doesn't answer: {error}") from error
        return self._pages.answer("operated.html", said=said, target=target)

    async def _done(self, operation: str, target: Target) -> str:
        if (client := await self._workflows.client(ANSWER_SECONDS)) is None:
            raise Unavailable("no Temporal server answers: start one with `clotho dev`, or give --temporal")
        operations = Operations(self._journal, client)
        match operation:
            case "pause":
                await operations.pause(target)
                return f"{target} is told to pause"
            case "resume":
                return f"{target} {'was started again' if await operations.resume(target) else 'goes on'}"
            case "cancel":
                await operations.cancel(target)
                return f"{target} is told to end"
        if await operations.retry(target):
            return f"{target} was started again"
        return f"Nothing was started: what is left of {target} is running"


def _order(fields: dict[str, str]) -> tuple[str, Target]:
    """The operation and its target. Raises InvalidInput."""
    operation = fields.get("operation", "")
    if operation not in OPERATIONS:
        raise InvalidInput(f"there is no operation {operation!r}")
    return operation, Target.named(fields.get("name", ""))
