"""Settings from the environment: what isn't one is refused."""

import pytest

from clotho.config import load_settings, secret
from clotho.errors import InvalidInput
from clotho.plugins.s3.settings import S3Settings
from clotho.tools.secrecy import REDACTED, Redactor


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("CLOTHO_STOER", "CLOTHO_STORE"),
        ("CLOTHO_WORKER_DRAIN_SECONDS", "CLOTHO_WORKER__DRAIN_SECONDS"),
        ("CLOTHO_WORKERS__DRAIN_SECONDS", "CLOTHO_WORKER__DRAIN_SECONDS"),
        ("clotho_sandbox__rot", "CLOTHO_SANDBOX__ROOT"),
    ],
)
def test_a_mistyped_variable_is_refused_with_the_right_names(
    monkeypatch: pytest.MonkeyPatch, variable: str, meant: str
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(InvalidInput, match=f"{variable} is no setting; near it are: .*{meant}"):
        load_settings()


def test_what_resembles_nothing_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOTHO_", "1")
    with pytest.raises(InvalidInput, match="CLOTHO_ is no setting"):
        load_settings()


def test_a_worker_polls_as_often_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOTHO_WORKER__ACTIVITY_POLLERS", "9")
    monkeypatch.setenv("CLOTHO_WORKER__WORKFLOW_POLLERS", "1")
    with pytest.raises(
        InvalidInput, match=r"worker\.workflow_pollers: Input should be greater than or equal to 2"
    ):
        load_settings()
    monkeypatch.setenv("CLOTHO_WORKER__WORKFLOW_POLLERS", "3")
    sizes = load_settings().worker
    assert (sizes.workflow_pollers, sizes.activity_pollers) == (3, 9)


def test_variables_in_any_case_and_of_a_whole_section_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("clotho_worker__max_tool_calls", "7")
    monkeypatch.setenv("CLOTHO_PLUGINS__S3", '{"timeout": 3}')
    settings = load_settings()
    assert (settings.worker.max_tool_calls, settings.of(S3Settings).timeout) == (7, 3.0)


@pytest.mark.parametrize("value", ["sk-of-a-file\n", "  sk-of-a-file\r\n"])
def test_a_secret_out_of_a_file_may_end_in_a_newline(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SOME_KEY", value)
    assert secret("SOME_KEY") == "sk-of-a-file"
    assert Redactor([value])("sk-of-a-file") == REDACTED


def test_a_secret_that_no_header_can_hold_is_refused_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-one\nsk-two")
    with pytest.raises(InvalidInput, match="SOME_KEY holds") as raised:
        secret("SOME_KEY")
    assert "sk-" not in str(raised.value)
