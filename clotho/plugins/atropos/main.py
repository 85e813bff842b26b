"""The adapter's command line: Atropos' own, without keys in the log; known failures end it in one line."""

import asyncio
import logging
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, Protocol

from pydantic import ValidationError

from clotho import failpoints
from clotho.config import load_settings
from clotho.errors import ClothoError
from clotho.frozen_model import field_errors
from clotho.host_failures import is_host_failure
from clotho.logs import configure
from clotho.plugins.atropos.key_options import Secrets
from clotho.processes.ending import run_to_end

REJECTED = 2
FLAGS = {
    "--api-key-env": "--env.api_key_variable",
    "--group-size": "--env.group_size",
    "--inference": "--env.inference",
    "--max-tokens": "--env.environment_config '{\"max_token_length\": TOKENS}'",
    "--renderer": "--env.renderer",
    "--run": "--env.run",
    "--store": "--env.store",
    "--temporal": "--env.temporal",
    "--tokenizer": "--env.tokenizer_name",
    "--tool-call-parser": "--env.tool_call_parser",
    "--unsafe-local": "--env.unsafe_local",
    "--dataset": '--env.environment_config \'{"dataset": {"source": SOURCE}}\'',
    "--prompt-field": '--env.environment_config \'{"dataset": {"prompt_field": NAME}}\'',
}
"""The flags of `clotho run` that messages name, and what the adapter calls them."""
_FLAG = re.compile(r"(?<![\w.-])--[a-z][a-z-]*(?![\w.-])")
log = logging.getLogger("clotho.plugins.atropos")


class Keyed(Protocol):
    """An environment class that keeps the keys of its command line."""

    secrets: Secrets


def main(kind: Keyed, cli: Callable[[], None]) -> NoReturn:
    """Run Atropos' `cli` of `kind` as the command line says, to the end of this process."""
    run_to_end(lambda: run_command(kind, cli))


def run_command(kind: Keyed, cli: Callable[[], None]) -> int:
    """The exit status. Raises what isn't a known failure."""
    try:
        settings = load_settings()
        configure(settings.log_format, "adapter")
        # it says ten times a second how many workers it has
        logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)
        failpoints.arm(settings.fail, settings.fail_folder)
        # before Atropos reads them: it prints its whole configuration
        sys.argv[1:] = kind.secrets.conceal_flags(sys.argv[1:])
        cli()
    except ValidationError as error:
        sys.stderr.write(f"configuration: {field_errors(error)}\n")
    except Exception as error:
        causes = tuple(_causes(error))
        if not all(isinstance(cause, ClothoError | OSError) or is_host_failure(cause) for cause in causes):
            raise
        sys.stderr.write("; ".join(dict.fromkeys(map(_in_one_line, causes))) + "\n")
    else:
        return 0
    return REJECTED


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


def with_own_flags(text: str) -> str:
    """The message with the adapter's flags in place of those of `clotho run`."""
    return _FLAG.sub(lambda found: FLAGS.get(found[0], found[0]), text)


@contextmanager
def until_stopped() -> Iterator[None]:
    """SIGTERM cancels the body, which is no error, so that deliveries that were begun can finish.

    A second one ends the process at once.
    """
    body, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert body is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        # gives a second SIGTERM its default effect back
        loop.remove_signal_handler(signal.SIGTERM)
        log.info("told to stop: groups that are being sent arrive first")
        body.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not stopped:
            raise
        body.uncancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
