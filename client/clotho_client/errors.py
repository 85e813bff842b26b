"""The errors of the client. While a server is away, requests are sent again: that is none."""


class ClientError(Exception):
    """Base of the client's errors."""


class RequestRefused(ClientError):
    """The server refused a request; the text has its status, and what to change."""


class TokenUnusable(ClientError):
    """The server's token is there, and can't be used."""
