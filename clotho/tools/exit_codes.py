"""Meanings of exit codes that look like failures and often aren't."""

import shlex
from pathlib import PurePosixPath

# shlex reads one character at a time
MAX_COMMAND_CHARS = 10_000

NO_MATCH = "No lines matched (not an error)"
DIFFERENT = "The inputs differ (not an error)"
FALSE = "The condition is false (not an error)"

BY_COMMAND: dict[tuple[str, int], str] = {
    **{(name, 1): NO_MATCH for name in ("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack")},
    **{(name, 1): DIFFERENT for name in ("diff", "cmp", "colordiff", "zdiff")},
    **{(name, 1): FALSE for name in ("test", "[")},
    ("find", 1): "Some paths could not be searched; what was found is still listed",
    ("git", 1): "Often normal: git diff found differences, or there was nothing to do",
    ("pytest", 1): "Some tests failed",
    ("pytest", 5): "No tests were collected",
    ("curl", 6): "The host could not be resolved",
    ("curl", 7): "The connection was refused or failed",
    ("curl", 22): "The server answered with an HTTP error",
    ("curl", 28): "The transfer timed out",
}

BY_CODE = {
    126: "The command could not be executed",
    127: "The command was not found",
    137: "The command was killed (SIGKILL), perhaps for using too much memory",
    139: "The command crashed (segmentation fault)",
}


def meaning(command: str, exit_code: int) -> str | None:
    """The meaning of `exit_code` of `command` where it isn't plain, by the last program that it names."""
    if exit_code == 0 or len(command) > MAX_COMMAND_CHARS:
        return BY_CODE.get(exit_code)
    return BY_COMMAND.get((_last_program(command), exit_code), BY_CODE.get(exit_code))


def _last_program(command: str) -> str:
    words = shlex.shlex(command.rstrip("\n").rpartition("\n")[2], posix=True, punctuation_chars=True)
    words.whitespace_split = True
    program = ""
    try:
        for word in words:
            if set(word) <= set("();<>|&"):
                # a redirection, such as the >& of 2>&1, or a parenthesis begins no other command
                program = "" if set(word) & set(";|&") and not set(word) & set("<>") else program
            elif not program and not _is_assignment(word):
                program = word
    except ValueError:
        return ""
    return PurePosixPath(program).name


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()
