"""Log lines as JSON."""

import json
import logging

import pytest

from clotho.logs import configure, subject


@pytest.mark.parametrize(
    ("about", "ids"),
    [
        ("-", {}),
        ("first", {"run": "first"}),
        ("first/~campaign", {"run": "first"}),
        ("first/g000003", {"run": "first", "group": "first/g000003"}),
        (
            "first/g000003/r1.2",
            {"run": "first", "group": "first/g000003", "rollout": "first/g000003/r1.2"},
        ),
    ],
)
def test_a_line_has_the_ids_of_what_it_is_about(
    about: str, ids: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    before, level = logging.root.handlers[:], logging.root.level
    configure("json", "llm")
    token = subject.set(about)
    try:
        logging.getLogger("clotho").warning("lost\n%s", "it")
    finally:
        subject.reset(token)
        logging.root.handlers, logging.root.level = before, level
    line = json.loads(capsys.readouterr().err)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "WARNING",
        "process": "llm",
        "logger": "clotho",
        "message": "lost\nit",
        **ids,
    }
