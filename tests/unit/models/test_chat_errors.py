"""What an HTTP answer that isn't a completion stands for."""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from email.utils import formatdate

import pytest

from clotho.errors import ContextOverflow, ModelRejected, ModelUnavailable
from clotho.models.provider_errors import refusal, retry_after


def openai_body(message: str, code: str | None = None, kind: str = "invalid_request_error") -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, openai_body("Too long.", code="context_length_exceeded")),
        (
            400,
            openai_body("This model's maximum context length is 8192 tokens. However, you requested 9000."),
        ),
        (400, openai_body("Your input exceeds the context window of this model. Please adjust your input.")),
        (400, openai_body("This endpoint's maximum context length is 8192 tokens.")),
        (
            400,
            openai_body("the request exceeds the available context size", kind="exceed_context_size_error"),
        ),
        (
            400,
            openai_body("The decoder prompt (length 4100) is longer than the maximum model length of 4096."),
        ),
        (400, openai_body("You passed 4100 input tokens. However, the model's context length is only 4096.")),
        (400, openai_body("max_tokens must be at least 1, got -4.")),
        (400, openai_body("prompt is too long: 210000 tokens > 200000 maximum")),
        (400, openai_body("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000")),
        (400, openai_body("Please reduce the length of the messages or completion.")),
        (400, openai_body("The input token count (10) exceeds the maximum number of tokens allowed (5).")),
        (400, openai_body("This model's maximum prompt length is 131072 but the request contains 140000.")),
        (413, openai_body("Input is too long for requested model.")),
        (
            422,
            json.dumps({"error": "`inputs` tokens + `max_new_tokens` must be <= 4096.", "error_type": "v"}),
        ),
        (
            400,
            json.dumps(
                {
                    "object": "error",
                    "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
                    "code": 400,
                }
            ),
        ),
        (
            400,
            json.dumps(
                {"object": "error", "message": "Requested token count exceeds the model's maximum context"}
            ),
        ),
    ],
)
def test_overflow_in_every_wording(status: int, body: str) -> None:
    assert isinstance(refusal(status, {}, body, max_tokens=64), ContextOverflow)


@pytest.mark.parametrize(
    "message",
    [
        "'max_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and your request has"
        " 100 input tokens",
        "You requested 4096 output tokens. However, the model's context length is only 4096 tokens",
        "Requested token count exceeds the model's maximum context length of 4000 tokens: 100 tokens from the input"
        " messages and 4096 tokens for the completion.",
    ],
)
def test_max_tokens_beyond_the_context_is_a_mistake_and_no_outcome(message: str) -> None:
    error = refusal(400, {}, openai_body(message), max_tokens=4096)
    assert isinstance(error, ModelRejected)
    assert "max_tokens=4096" in str(error)


def test_prompt_too_long_beside_a_max_tokens_that_the_server_shortens() -> None:
    message = (
        "This model's maximum context length is 1024 tokens. However, your messages resulted in 1100 tokens"
    )
    assert isinstance(refusal(400, {}, openai_body(message), max_tokens=2048), ContextOverflow)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, openai_body("Unknown parameter: 'top_k'."), ModelRejected),
        (401, openai_body("Incorrect API key provided: sk-abc***xyz"), ModelRejected),
        (403, openai_body("Country not supported"), ModelRejected),
        (404, openai_body("The model `x` does not exist", code="model_not_found"), ModelRejected),
        (
            413,
            openai_body("Request too large for model `x` on tokens per minute (TPM): Limit 6"),
            ModelRejected,
        ),
        (422, json.dumps({"detail": [{"msg": "field required"}]}), ModelRejected),
        (
            429,
            openai_body("Request too large for gpt-4 on tokens per min: Limit 10, Requested 12"),
            ModelRejected,
        ),
        (408, "", ModelUnavailable),
        (429, openai_body("Rate limit reached"), ModelUnavailable),
        (500, "<html>oops</html>", ModelUnavailable),
        (503, "", ModelUnavailable),
        (529, openai_body("Overloaded"), ModelUnavailable),
    ],
)
def test_other_refusals(status: int, body: str, kind: type[Exception]) -> None:
    error = refusal(status, {}, body)
    assert isinstance(error, kind)
    assert str(status) in str(error)


def test_refused_key_is_not_repeated() -> None:
    assert "sk-" not in str(refusal(401, {}, openai_body("Incorrect API key provided: sk-abc***xyz")))


@pytest.mark.parametrize("status", [402, 429])
def test_account_without_credit_is_waited_for(status: int) -> None:
    error = refusal(status, {}, openai_body("You exceeded your quota", code="insufficient_quota"))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == timedelta(minutes=5)


def test_long_bodies_are_bounded() -> None:
    assert len(str(refusal(500, {}, "x" * 100_000))) < 1_000


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"retry-after": "7"}, 7),
        (503, {"retry-after": "1.5"}, 1.5),
        (503, {"retry-after": "0"}, None),
        (503, {"retry-after": "soon"}, None),
        (429, {"retry-after": "86400"}, 3600),
        (429, {"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        (429, {"x-ratelimit-reset-tokens": "1m30s", "x-ratelimit-remaining-tokens": "0"}, 60),
        (429, {"x-ratelimit-reset-requests": "120ms", "x-ratelimit-reset-tokens": "6s"}, 6),
        (429, {"x-ratelimit-reset-requests": "9s", "x-ratelimit-remaining-requests": "5"}, None),
        (429, {"x-ratelimit-reset": "12"}, 12),
        (503, {"x-ratelimit-reset": "12"}, None),
        (429, {}, None),
    ],
)
def test_retry_after(status: int, headers: dict[str, str], seconds: float | None) -> None:
    expected = timedelta(seconds=seconds) if seconds is not None else None
    assert retry_after(status, headers) == expected


@pytest.mark.parametrize(
    ("header", "written"),
    [
        ("retry-after", lambda at: formatdate(at, usegmt=True)),
        ("x-ratelimit-reset", lambda at: str(int(at))),
        ("x-ratelimit-reset", lambda at: str(int(at * 1000))),
    ],
)
def test_retry_after_as_a_date(
    header: str, written: Callable[[float], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("clotho.models.provider_errors.time.time", lambda: now)
    wait = retry_after(429, {header: written(now + 30)})
    assert wait is not None
    assert 29 <= wait.total_seconds() <= 30
