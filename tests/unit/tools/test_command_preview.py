"""What histories show of a command."""

import json

from clotho.tools.secrecy import PREVIEW_CHARACTERS, CommandPreviews

PREVIEWS = CommandPreviews({"KEY": "a-secret-value"}.get)


def preview(command: str) -> str:
    return PREVIEWS.of(json.dumps({"command": command}), ["KEY", "UNSET"])


def test_it_is_bounded_and_on_one_line() -> None:
    assert preview("cd /work &&\n\tls") == "cd /work && ls"
    assert preview("x" * 1000) == "x" * (PREVIEW_CHARACTERS - 1) + "…"
    assert preview("a\x1b[2J\u202e") == "a�[2J�"


def test_secrets_are_gone_before_it_is_cut() -> None:
    assert preview("echo a-secret-value") == "echo [REDACTED]"
    assert "a-secret" not in preview("x" * 52 + " a-secret-value")
    assert "sk-" not in preview("curl -H 'Authorization: Bearer " + "sk-" + "a1" * 20 + "'")


def test_other_tools_show_their_path_and_what_is_no_object_nothing() -> None:
    assert PREVIEWS.of('{"path": "a.py", "content": "x"}', ()) == "a.py"
    for arguments in ("[1]", "{", '"text"', '{"command": 7}', "[" * 5_000, '{"id": ' + "9" * 5_000 + "}"):
        assert PREVIEWS.of(arguments, ()) == ""
