"""Reading the bodies of requests."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from clotho.embedded.model.http.refusals import Refusal, invalid, refused
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.refused import Refused

Asked = TypeVar("Asked", bound=BaseModel)


class BodyReader:
    """Reads what one server is asked, within `limits`."""

    def __init__(self, limits: BodyLimits) -> None:
        self._bodies = Bodies(limits)

    async def read(self, request: Request, model: type[Asked]) -> Asked:
        """Raises Refusal."""
        try:
            async with self._bodies.body(request.headers, request.receive) as body:
                return model.model_validate_json(self._bodies.unpacked(body, ""))
        except Refused as error:
            raise refused(error) from error
        except ClientDisconnect:
            raise Refusal(499, "The client closed the connection.") from None
        except ValidationError as error:
            raise invalid(error) from error
