"""The adapter's command line: Atropos' own, without keys in the log; known failures end it in one line."""

import logging
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol

from pydantic import ValidationError

from clotho import failpoints
from clotho.config import load_settings
from clotho.errors import ClothoError
from clotho.frozen_model import field_errors
from clotho.host_failures import is_host_failure
from clotho.logs import configure
from clotho.plugins.atropos.flags import with_own_flags
from clotho.plugins.atropos.key_options import Secrets

REJECTED = 2


class Keyed(Protocol):
    """An environment class that keeps the keys of its command line."""

    secrets: Secrets


def main(kind: Keyed, cli: Callable[[], None]) -> NoReturn:
    """Run Atropos' `cli` of `kind` as the command line says, to the end of this process."""
    try:
        settings = load_settings()
        configure(settings.log_format, "adapter")
        # It says ten times a second how many workers it has.
        logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)
        failpoints.arm(settings.fail, settings.fail_folder)
        sys.argv[1:] = kind.secrets.conceal_flags(sys.argv[1:])
        cli()
    except ValidationError as error:
        sys.stderr.write(f"configuration: {field_errors(error)}\n")
    except Exception as error:
        causes = tuple(_causes(error))
        if not all(isinstance(cause, ClothoError | OSError) or is_host_failure(cause) for cause in causes):
            raise
        sys.stderr.write("; ".join(dict.fromkeys(map(_in_one_line, causes))) + "\n")
    sys.exit(REJECTED)


def _causes(error: Exception) -> Iterator[Exception]:
    """The exceptions in a group and the groups within it, or the exception itself."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, ClothoError):
        return with_own_flags(text)
    return f"{type(error).__name__}: {text}"
