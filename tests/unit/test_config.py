"""Settings from the environment: what isn't one is refused."""

import pytest

from clotho.config import load_settings
from clotho.errors import InvalidInput


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
    monkeypatch.setenv("CLOTHO_S3", '{"timeout": 3}')
    settings = load_settings()
    assert (settings.worker.max_tool_calls, settings.s3.timeout) == (7, 3.0)
