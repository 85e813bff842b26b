"""Reads the load of vLLM and SGLang from their /metrics."""

import math
import re
from collections.abc import Mapping

from clotho.frozen_model import FrozenModel

QUEUES = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")
CACHES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
# bounded repeats: a hostile page takes time in proportion to its length
LINE = re.compile(r"^([a-z]+:[a-z_]+)(?:\{[^\n]{0,2000}?\})? +(\S{1,40})", re.MULTILINE)
MOST = 1e9


class ServerLoad(FrozenModel):
    """Requests that wait in a server's queue, and the share of its KV cache in use; zeros where it says nothing.

    vLLM and SGLang report it at /metrics. It is a hint, and never trusted with more than that.
    """

    queue: float = 0.0
    cache: float = 0.0


def server_load(text: str) -> ServerLoad:
    """The load in a page of metrics; what isn't a number that could be true is left out."""
    found: dict[str, list[float]] = {}
    for name, value in LINE.findall(text):
        if name in QUEUES or name in CACHES:
            found.setdefault(name, []).append(_number(value))
    queue = sum(_told(found, QUEUES, MOST))
    return ServerLoad(queue=min(queue, MOST), cache=max(_told(found, CACHES, 1.0), default=0.0))


def _told(found: Mapping[str, list[float]], names: tuple[str, ...], most: float) -> list[float]:
    return [value for name in names for value in found.get(name, ()) if 0 <= value <= most]


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
