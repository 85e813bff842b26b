"""The health checks of a worker under any requests: it answers each with a reason, and stays ready."""

import itertools
from pathlib import Path

from tests.fuzz.requests import Endpoint, RawRequest, answer_to, request
from tests.fuzz.runner import Fuzzer
from tests.monitoring.test_health import READY, get, health, readiness_of

EXPECTED = {None, 200, 400, 403, 404, 405, 408, 413, 501, 503}
CHECKED_EVERY = 25
ENDPOINTS = [
    *(Endpoint("GET", path) for path in ("/healthz", "/readyz", "/", "/metrics")),
    *(Endpoint(method, "/readyz", {"a": [1]}) for method in ("POST", "PUT", "HEAD", "OPTIONS", "X")),
    Endpoint("GET", "/healthz", {"a": "b" * 5_000}),
]


async def test_any_request_is_answered_with_a_reason(tmp_path: Path, fuzzer: Fuzzer) -> None:
    async with health(readiness_of(tmp_path)) as port:
        checked = itertools.count(1)

        async def check(case: RawRequest) -> None:
            status = await answer_to(case, port)
            assert status in EXPECTED, status
            if next(checked) % CHECKED_EVERY == 0:
                assert (await get(f"http://127.0.0.1:{port}/readyz")).json() == READY

        assert await fuzzer.run_async(lambda random: request(random, ENDPOINTS), check) > 0
        assert (await get(f"http://127.0.0.1:{port}/readyz")).json() == READY
