"""Tokens of this machine's HTTP servers: one for each port, in a file that only its user can read."""

import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from clotho_client.errors import TokenUnusable
from clotho_client.tokens import TokenAuth as ClientTokenAuth
from clotho_client.tokens import read_token, token_file

from clotho.config import TOKEN_VARIABLE, shared_token
from clotho.errors import InvalidInput

USER = "clotho"
"""The user of URLs that carry a token as their password: clients leave out a password without a user."""


@dataclass(frozen=True)
class Token:
    """A token that requests to a server need, and where its clients find it."""

    text: str
    source: Path | str
    """Its file, or the name of its environment variable."""

    @property
    def shown(self) -> str:
        """The token for a terminal; one out of a variable is shown as $NAME, which a shell replaces."""
        return self.text if isinstance(self.source, Path) else f"${self.source}"

    def in_url(self, url: str) -> str:
        """`url` with the token as its password."""
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{USER}:{self.shown}@{rest}"


def token_of_port(port: int) -> Token:
    """The token of a server at `port`: CLOTHO_TOKEN's, else the file's, which is made if there is none.

    A file outlives its server, so that clients go on with the next one at the same port. Raises InvalidInput.
    """
    if (shared := shared_token()) is not None:
        return Token(shared, TOKEN_VARIABLE)
    path = token_file(port)
    try:
        if (text := read_token(path)) is None:
            _create(path, secrets.token_urlsafe(24))
            # read again: another process may have been first
            text = read_token(path)
    except TokenUnusable as error:
        raise InvalidInput(str(error)) from error
    except OSError as error:
        raise InvalidInput(
            f"the token can't be kept in {path} ({error.strerror}): name a variable with --token-variable"
        ) from error
    if text is None:
        raise InvalidInput(f"{path} holds no token: remove it, and start the server again")
    return Token(text, path)


def _create(path: Path, text: str) -> None:
    """Write the file, unless it is there: of two processes that make a port's token, both use the first one's."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Written aside: a server that is killed meanwhile leaves no token that is cut off.
    # mkstemp: only its user can read the file, whatever the umask is
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


class TokenAuth(ClientTokenAuth):
    """The client's TokenAuth, with the core's errors."""

    def find(self, url: httpx.URL) -> str | None:
        """The token of CLOTHO_TOKEN, or of the port's file. Raises InvalidInput."""
        try:
            return super().find(url)
        except TokenUnusable as error:
            raise InvalidInput(str(error)) from error
