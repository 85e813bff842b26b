"""The reference page of the rollout API."""

from collections.abc import Iterable

from clotho_client.orders import ClaimOrder, Fetch, GroupAnswer, GroupOrder, RunOrder
from fastapi.routing import APIRoute
from pydantic import BaseModel

from clotho.plugins.orders.server import REFUSALS, router
from docs.generate.fields import code, default, described_fields, kind, table

INTRODUCTION = """\
# Rollout API

This page is written by `python -m docs.generate` from the code. `GET /openapi.json` has the same as OpenAPI 3.1.

```sh
clotho serve-rollouts --port 8010
```

Trainers order groups here by names of their own, wait for their rows, and acknowledge them. Beside it run Temporal
and workers, such as those of `clotho dev`. Requests need [a token](security.md#who-may-order-work), which the
client in Python finds by itself on the same machine; others show it as `Authorization: Bearer …`.

The client is a package of its own, `clotho-client`, that needs httpx and pydantic and nothing of Clotho: build its
wheel with `pip wheel --no-deps ./client`, and install it where the trainer runs. Clotho's own wheel has it too.

```python
from clotho_client.client import RolloutClient
from clotho_client.orders import GroupOrder

with RolloutClient("http://127.0.0.1:8010") as client:
    client.open_run("first", order)
    client.order("first", "step-3-0", GroupOrder(item=item, step=3))
    answer = client.wait("first", "step-3-0")
```

- **Names make everything idempotent.** The same name is the same group, whoever orders it and however often: each
  request may be sent again after any answer, or none. Names are 1 to 64 of letters, digits, `_` and `-`.
- **Orders are in the store.** They outlive this process, workers, Temporal and the trainer. Several servers may
  serve one store.
- **A refused group** has a reason in one word: those of [token rows](tokens.md), and `cancelled`, `infrastructure`
  or `environment_failed` for groups that ended without rewards. It is never a reward of 0.
- **Groups that are open** go on by themselves. One that fails for a reason that would hit every group is tried
  again without a bound, while it is asked for; `reason` is `failing` then.
- **Nothing runs on a host by order.** `settings` and `environment_config` can't have MCP servers with
  `where: host`, nor `unsafe_local`, unless the server's own `clotho.yaml` or the environment says the same (409).
- **Rows stay.** After an acknowledgement they can be fetched again, until `clotho delete`.

"""
WITHOUT_TABLE = """
`endpoint` has `base_url`, `more_urls`, `weights` (a number for each of these servers, or none), `api_key_variable`
and `inference` (`tokens`, or `vllm-generate`, `vllm-completions`, `sglang`; `chat` has no rows). `rendering` has
`tokenizer`, `renderer`, `tool_call_parser` and `thinking_mode`. `settings` has the fields of
[runs](settings.md#runs).
"""


CLAIMS = """
For callers that have no names of their own. A claim, under an id that it makes up, orders the next group of a
sequence: `key` names the sequence, and groups that are refused are passed over. Within one `life`, each claim has
another group. In the next life they are counted from the first again: what was rolled out is given again, in the
same order, and nothing is rolled out twice. The answer has the group's `name`. Beside the fields of a group:
"""


def rollout_api_page() -> str:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    operations = (
        (code(f"{verb} {route.path}"), route.description) for route in routes for verb in route.methods or ()
    )
    refusals = ((str(status), meaning) for status, meaning in REFUSALS.items())
    return (
        INTRODUCTION
        + "\n\n".join(
            (
                table(("request", "does"), operations),
                table(("status", "meaning"), refusals),
                "## A run",
                _fields(RunOrder) + "\n" + WITHOUT_TABLE.rstrip(),
                "## A group",
                _fields(GroupOrder),
                "## A claim",
                CLAIMS.strip(),
                _fields(ClaimOrder),
                "## Fetching",
                "Fields of the query.",
                _fields(Fetch),
                "## Answers",
                _fields(GroupAnswer),
            )
        )
        + "\n"
    )


def _fields(model: type[BaseModel]) -> str:
    return table(("field", "type", "default", "meaning"), _rows(model))


def _rows(model: type[BaseModel]) -> Iterable[tuple[str, ...]]:
    for name, field, meaning in described_fields(model):
        yield code(name), kind(field.annotation), default(field), meaning
