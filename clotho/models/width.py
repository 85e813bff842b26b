"""How many requests a model server is sent at once: more while it takes them, fewer when it refuses any.

Additive increase, multiplicative decrease, with two additions. Until the first refusal the width doubles. After
one, the requests that the server had taken say how many fit, and the width at which it refused is tried again only
now and then: it stays near what the server bears in place of halving again and again.
"""

import math
import re
from collections.abc import Mapping

from clotho.frozen_model import FrozenModel

QUEUES = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")
CACHES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
LINE = re.compile(r"^([a-z]+:[a-z_]+)(?:\{[^\n]{0,2000}?\})? +(\S{1,40})", re.MULTILINE)
MOST = 1e9
FIRST_WIDTH = 32
DECREASE = 0.9
GROWTH = 0.05
"""Share of the width that is added at a time after the first refusal."""
PROBE_SECONDS = 10.0
"""Time after a refusal before its width is tried again."""
TRUSTED_SECONDS = 3.0
"""Time in which a width is used without a refusal before a larger one is tried freely."""
SLOW, TOO_SLOW = 4.0, 8.0
"""Times the shortest time for a token, from which the width doesn't grow, and shrinks."""
LEAST_BY_HINTS = 8
"""Least width that slow answers and /metrics may lead to, or keep: they may lie, and a refusal doesn't."""
BUSY_QUEUE, LONG_QUEUE = 0.1, 0.5
"""Requests that wait in the server's own queue, by width, from which the width doesn't grow, and shrinks."""
BUSY_CACHE, FULL_CACHE = 0.9, 0.98


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


class Width(FrozenModel):
    """The width of a server, and why; times are Unix seconds of the process that changed it."""

    width: int = FIRST_WIDTH
    changes: int = 0
    """Changes so far: of two widths that processes know of, the one with more counts."""
    why: str = "a first guess"
    refused: int | None = None
    """The width at which it last refused a request; None before, and when it takes that by now."""
    refused_at: float = 0.0
    changed_at: float = 0.0


class Signals(FrozenModel):
    """What was seen of a server since the last look, by all processes together."""

    in_use: int
    """Requests that it is answering."""
    waiting: int
    """Requests that wait for their turn."""
    refused: int = 0
    """Requests that it has refused for being too many."""
    slowness: float = 1.0
    """Time for a token, relative to the shortest seen."""
    load: ServerLoad = ServerLoad()


def adjusted(width: Width, seen: Signals, now: float) -> Width:
    """The width for the time after `now`."""
    if seen.refused:
        return _after_refusals(width, seen, now)
    if width.width >= LEAST_BY_HINTS and (hint := _shrinks(width, seen)) is not None:
        narrower = max(LEAST_BY_HINTS, int(width.width * DECREASE))
        return _changed(width, narrower, hint, now) if narrower < width.width else width
    settled = width.refused is None or _is_over(width.changed_at, TRUSTED_SECONDS, now)
    if width.refused is not None and width.width >= width.refused and settled:
        width = width.model_copy(update={"refused": None})  # it takes more than it did
    if not seen.waiting or seen.in_use < width.width or _holds(width, seen):
        return width
    return _wider(width, now)


def _after_refusals(width: Width, seen: Signals, now: float) -> Width:
    fitting = max(1, width.width // 2, min(seen.in_use, int(width.width * DECREASE)))
    why = f"it refused {seen.refused} requests at {width.width}"
    refused = {"refused": width.width, "refused_at": now}
    return _changed(width.model_copy(update=refused), min(fitting, width.width), why, now)


def _wider(width: Width, now: float) -> Width:
    step = max(1, int(width.width * GROWTH))
    if width.refused is None:
        return _changed(width, width.width * 2, f"it took {width.width}", now)
    below = width.refused - 1
    if width.width < below:
        return _changed(width, min(below, width.width + step), f"it refused at {width.refused}", now)
    if width.width < width.refused and _is_over(width.refused_at, PROBE_SECONDS, now):
        return _changed(width, width.refused, f"trying {width.refused} again", now)
    return width


def _shrinks(width: Width, seen: Signals) -> str | None:
    if seen.slowness > TOO_SLOW:
        return f"answers take {seen.slowness:.1f} times as long as at best"
    if seen.load.queue > max(1.0, LONG_QUEUE * width.width):
        return f"{seen.load.queue:.0f} requests wait in its queue"
    if seen.load.cache > FULL_CACHE and seen.load.queue:
        return f"its KV cache is {seen.load.cache:.0%} full"
    return None


def _holds(width: Width, seen: Signals) -> bool:
    load = seen.load
    queued = load.queue > max(1.0, BUSY_QUEUE * width.width)
    if width.width < LEAST_BY_HINTS:
        return False
    return seen.slowness > SLOW or queued or load.cache > BUSY_CACHE


def _changed(width: Width, to: int, why: str, now: float) -> Width:
    update = {"width": to, "why": why, "changed_at": now, "changes": width.changes + 1}
    return width.model_copy(update=update)


def _is_over(since: float, seconds: float, now: float) -> bool:
    """Whether it is so long ago; what another host's clock says to be in the future is."""
    return not 0 <= now - since < seconds


def shares(width: int, demands: dict[str, int], turn: int) -> dict[str, int]:
    """The width divided between processes by their demands; `turn` rotates what can't be divided.

    What nobody demands is divided evenly: a process may begin before others have seen its demand.
    """
    names = sorted(demands)
    granted = dict.fromkeys(names, 0)
    left = width
    while left:
        wanting = [name for name in names if granted[name] < demands[name]] or names
        each = left // len(wanting)
        if not each:
            for offset in range(left):
                granted[wanting[(turn + offset) % len(wanting)]] += 1
            return granted
        for name in wanting:
            room = demands[name] - granted[name]
            part = min(each, room) if room > 0 else each
            granted[name] += part
            left -= part
    return granted
