"""The durable Atropos API under any requests: it answers each with a reason, and goes on serving groups."""

import itertools
from pathlib import Path

from tests.atropos_api.service import ENV, TRAINER, Api, group, number_of, running
from tests.fuzz.requests import Endpoint, RawRequest, answer_to, request
from tests.fuzz.runner import Fuzzer

EXPECTED = {None, 200, 307, 400, 403, 404, 405, 408, 409, 413, 422, 501, 503}
CHECKED_EVERY = 25
FULL = group(
    1,
    messages=[[{"role": "user", "content": "a"}]] * 4,
    advantages=[[0.5] * 3] * 4,
    ref_logprobs=[[-1.0] * 3] * 4,
    generation_params={"temperature": 1.0},
    overrides=[{}] * 4,
    group_overrides={},
    images=None,
    env_id=0,
    distill_token_ids=[[[1, 2]] * 3] * 4,
    distill_logprobs=[[[-1.0, -2.0]] * 3] * 4,
)
ENDPOINTS = [
    Endpoint("POST", "/register", TRAINER),
    Endpoint("POST", "/register-env", ENV),
    Endpoint("POST", "/register-env", {**ENV, "min_batch_allocation": 0.5, "group_size": 2}),
    Endpoint("POST", "/disconnect-env", {"env_id": 0}),
    Endpoint("GET", "/status-env", {"env_id": 0}),
    *(Endpoint("GET", path) for path in ("/", "/info", "/wandb_info", "/status", "/latest_example", "/docs")),
    *(Endpoint("GET", path) for path in ("/batch", "/batch", "/reset_data", "/openapi.json")),
    *(Endpoint("POST", path, group(2, rows)) for path in ("/scored_data", "/status") for rows in (1, 2, 4)),
    Endpoint("POST", "/scored_data", group(3, rows=2, env_id=1)),
    Endpoint("POST", "/scored_data", FULL),
    Endpoint("POST", "/scored_data_list", [group(4, env_id=0), group(5, rows=1, env_id=0), FULL]),
    *(Endpoint(method, "/scored_data", FULL) for method in ("PUT", "HEAD", "OPTIONS", "X")),
]


async def test_any_request_is_answered_with_a_reason(tmp_path: Path, fuzzer: Fuzzer) -> None:
    async with running(tmp_path, arguments=("--no-token",)) as api:
        await api.register()
        checked = itertools.count(1)

        async def check(case: RawRequest) -> None:
            status = await answer_to(case, api.port)
            assert status in EXPECTED, status
            if next(checked) % CHECKED_EVERY == 0:
                await serves(api)

        count = await fuzzer.run_async(lambda random: request(random, ENDPOINTS), check)
        await serves(api)
        assert "Traceback" not in api.process.output
        assert count > 0


async def serves(api: Api) -> None:
    """Whatever was sent before, a batch can be fetched, and a trainer that begins anew gets its groups."""
    assert (await api.http.get("/batch")).status_code == 200
    await api.http.get("/reset_data")
    await api.register(batch_size=4)
    await api.post("/scored_data", group(7))
    served: list[int] = []
    while (
        batch := await api.batch()
    ) is not None:  # a client that left may have sent groups that come in now
        served += [number_of(each) for each in batch]
    assert 7 in served
    await api.http.get("/reset_data")
    await api.register()
