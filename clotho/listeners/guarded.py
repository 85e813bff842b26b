"""An application behind the checks that every request has to pass."""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clotho.listeners.access import Access
from clotho.listeners.bodies import Bodies
from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.refused import Refused


def guarded(
    app: ASGIApp, access: Access, bodies: Bodies, refusal: Callable[[Refused], Response]
) -> EarlyAnswers:
    """`app` behind the checks: it sees allowed requests alone, each with its whole body, which is bounded.

    `refusal` makes the answers to refused requests.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            access.check(headers)
            async with bodies.body(headers, receive) as body:
                # values of a packed body can't be counted yet: the application checks what it unpacks
                if "content-encoding" not in headers:
                    bodies.check_values(body)
                unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

                async def receive_again() -> Message:
                    # an application that is done with the body waits here for its client's leaving
                    return unread.pop() if unread else await receive()

                await app(scope, receive_again, send)
        except Refused as refused:
            await refusal(refused)(scope, receive, send)
        except ClientDisconnect:
            return

    # outermost: a refusal is an answer before the body was read
    return EarlyAnswers(answer)
