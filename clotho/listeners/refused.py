"""The one error of a request that gets no further."""

from collections.abc import Mapping


class Refused(Exception):
    """A request that is answered with `status` and changes nothing."""

    def __init__(self, status: int, detail: object, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
