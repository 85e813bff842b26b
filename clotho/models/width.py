"""How many requests a model server is sent at once: more while that pays, fewer when it refuses any.

Additive increase, multiplicative decrease, with two additions. Until the first refusal the width doubles. After
one, the requests that the server had taken say how many fit, and the width at which it refused is tried again only
now and then: it stays near what the server bears in place of halving again and again.

A server may slow down in place of refusing. So a width that grows is on trial: where the server's rate, the
requests in flight over the seconds for a token, doesn't grow with it, the width goes back. Where tokens take much
longer than they did, a narrower one is on trial. What decides is the rate and not the time of an answer: a server
that batches takes longer for each of many, and does more. One whose answers take as long as ever is never narrowed.
"""

import math

from clotho.frozen_model import FrozenModel
from clotho.models.server_load import ServerLoad
from clotho.models.speed import LATEST, Level

FIRST_WIDTH = 8
"""Where the server's speed is measured first: few servers slow down with so few."""
DECREASE = 0.9
GROWTH = 0.05
"""Share of the width that is added at a time after the first refusal."""
PROBE_SECONDS = 10.0
"""Time after a refusal before its width is tried again."""
TRUSTED_SECONDS = 3.0
"""Time in which a width is used without a refusal before a larger one is tried freely."""
FEW, PART = 8, 0.25
"""Answers, and their share of the requests in flight, after which the width is doubled."""
PATIENCE_SECONDS, PATIENCE_WITH_ANSWERS = 10.0, 30.0
"""Time without so many answers after which the width is doubled all the same: calls may take minutes."""
ENOUGH, PRECISE = 20, 0.01
"""Answers, and the variance of their pace, by which any other change of the width is judged."""
SLOW = math.log(2)
"""Logarithm of the times that a token takes longer than usual, from which a narrower width is tried."""
WORTH = 0.15
"""Growth of the rate by that of the width, as logarithms, from which the wider one pays: 1 where it scales."""
NARROWER, WIDER = 0.7, 1.25
CREST_SECONDS = 30.0
"""Time after a width didn't pay before a wider one is tried."""
LEAST_BY_HINTS = 8
"""Least width that /metrics may lead to, or keep: they may lie, and a refusal doesn't."""
BUSY_QUEUE, LONG_QUEUE = 0.1, 0.5
"""Requests that wait in the server's own queue, by width, from which the width doesn't grow, and shrinks."""
BUSY_CACHE, FULL_CACHE = 0.9, 0.98


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
    settles: bool = False
    """Whether it is judged without as many answers as were in flight at the change."""
    usual: Level | None = None
    """The server as quick as it is known, by the requests in flight."""
    back: int | None = None
    """Where this width is on trial: the one to go back to."""
    before: Level | None = None
    """What the server did at that one."""
    crest: int | None = None
    """The width that didn't pay; None before, and when it does by now."""
    crest_at: float = 0.0


class Signals(FrozenModel):
    """Counts of all processes together since the last look at a server."""

    in_use: int
    """Requests that it is answering."""
    waiting: int
    """Requests that wait for their turn."""
    promised: int = 0
    """Requests that processes may send: its share of the width, or what a process has in flight beyond it."""
    refused: int = 0
    """Requests that it has refused for being too many, of those sent at this width."""
    level: Level | None = None
    """What it does at this width."""
    joint: bool = True
    """Whether all processes that ask it know of this width."""
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
    given_up = False
    if width.back is not None:
        judged = _judged(width, width.back, seen, now)
        if judged.back is not None:
            return judged
        given_up, width = judged.changes > width.changes, judged
    # while a process asks by another width still, answers are those of a mixture
    here = seen.level if seen.joint else None
    width = _with_usual(width, here)
    if here is not None and _is_slow(here, width.usual):
        return _on_trial(width, _narrower(width, here), here, "its tokens take long", now)
    # what was seen of a width that was given up says nothing of one beyond this one
    if given_up or not seen.waiting or seen.in_use < width.width or _holds(width, seen):
        return width
    return _wider(width, here, now)


def _after_refusals(width: Width, seen: Signals, now: float) -> Width:
    if not seen.joint or seen.promised > width.width:
        # Some process asks for its part of a larger width still: refusals of this one are counted from now on.
        return width.model_copy(update={"changes": width.changes + 1})
    # at least half: what is in flight is one moment's count, and may be low by chance
    fitting = max(1, width.width // 2, min(seen.in_use, int(width.width * DECREASE)))
    why = f"it refused {seen.refused} requests at {width.width}"
    refused = {"refused": width.width, "refused_at": now}
    return _changed(width.model_copy(update=refused), min(fitting, width.width), why, now)


def _judged(width: Width, back: int, seen: Signals, now: float) -> Width:
    """The width that was on trial: kept, given up, or on trial still."""
    here, before, wider = seen.level, width.before, width.width > back
    assert before is not None
    if wider and not seen.waiting and seen.in_use < width.width:
        return _kept(width)  # nobody needs it: it can't show anything
    ramps = wider and width.crest is None
    if here is None or not seen.joint or not (_is_evident(here) if ramps else _is_precise(here)):
        if not wider or not _is_overdue(width, here, now):
            return width
        # without answers nothing speaks against doubling; beyond a crest, a width has to prove that it pays
        return _kept(width) if ramps else _given_up(width, back, now)
    if wider:
        # While it ramps up, few answers decide: what may be chance is no reason to stop.
        pays = _pays(here, before, here.doubt(before) if ramps else 0.0)
        return _kept(width) if pays else _given_up(width, back, now)
    if _pays(before, here):
        # As long as tokens take, more requests bring more of them: so long is usual now.
        why = f"{width.width} brought fewer tokens"
        return _changed(width.model_copy(update={"usual": before}), back, why, now, settles=True)
    why = f"{width.width} brought as many tokens as {back}"
    narrowed = width.model_copy(update={"crest": back, "crest_at": now})
    return _on_trial(narrowed, int(width.width * NARROWER), here, why, now)


def _pays(wide: Level, narrow: Level, doubt: float = 0.0) -> bool:
    """Whether the rate grows with the requests in flight."""
    return wide.rate - narrow.rate + doubt >= WORTH * math.log(wide.in_use / narrow.in_use)


def _kept(width: Width) -> Width:
    # a width that pays at the crest or above it has disproved the crest
    crest = width.crest if width.crest is not None and width.width < width.crest else None
    return width.model_copy(update={"back": None, "before": None, "crest": crest})


def _given_up(width: Width, back: int, now: float) -> Width:
    crest = width.model_copy(update={"crest": width.width, "crest_at": now})
    return _changed(crest, back, f"{width.width} brought no more tokens", now, settles=True)


def _on_trial(width: Width, to: int, before: Level, why: str, now: float) -> Width:
    if max(1, to) == width.width:
        return _kept(width)
    tried = _changed(width, max(1, to), why, now, settles=True)
    return tried.model_copy(update={"back": width.width, "before": before})


def _is_evident(here: Level) -> bool:
    return here.answers >= max(FEW, min(LATEST, int(here.in_use * PART)))


def _is_precise(here: Level) -> bool:
    # a process keeps LATEST answers: of one alone there will never be more
    return here.answers >= ENOUGH and (here.variance <= PRECISE or here.answers >= LATEST)


def _is_overdue(width: Width, here: Level | None, now: float) -> bool:
    patience = PATIENCE_SECONDS if here is None else PATIENCE_WITH_ANSWERS
    if width.settles and width.before is not None:
        # the answers in flight at the change, which don't count, come first
        patience += 4 * width.before.seconds
    return _is_over(width.changed_at, patience, now)


def _with_usual(width: Width, here: Level | None) -> Width:
    """The width, with the level of the highest rate so far as the usual one."""
    if here is None or not _is_evident(here):
        return width
    if width.usual is None or here.rate - here.doubt(width.usual) > width.usual.rate:
        return width.model_copy(update={"usual": here})
    return width


def _is_slow(here: Level, usual: Level | None) -> bool:
    # one request at a time can't be narrowed
    if usual is None or here.answers < ENOUGH or here.in_use < 2:
        return False
    return here.pace - usual.pace > SLOW + here.doubt(usual)


def _narrower(width: Width, here: Level) -> int:
    """The width at which the server did best, or a little less than now."""
    least = here.in_use * NARROWER
    if width.usual is not None and width.usual.rate > here.rate:
        least = min(least, width.usual.in_use)
    return round(least)


def _wider(width: Width, here: Level | None, now: float) -> Width:
    if width.crest is not None and (width.refused is None or width.crest <= width.refused):
        return _past_crest(width, width.crest, here, now)
    if width.refused is None:
        return _doubled(width, here, now)
    below = width.refused - 1
    if width.width < below:
        step = max(1, int(width.width * GROWTH))
        return _changed(width, min(below, width.width + step), f"it refused at {width.refused}", now)
    if width.width < width.refused and _is_over(width.refused_at, PROBE_SECONDS, now):
        return _changed(width, width.refused, f"trying {width.refused} again", now)
    return width


def _doubled(width: Width, here: Level | None, now: float) -> Width:
    doubled = _changed(width, width.width * 2, f"it took {width.width}", now)
    if here is not None and _is_evident(here):
        return doubled.model_copy(update={"back": width.width, "before": here})
    return doubled if _is_overdue(width, here, now) else width


def _past_crest(width: Width, crest: int, here: Level | None, now: float) -> Width:
    """A width half of the way to the crest; near it a little more, now and then."""
    near = crest < width.width * WIDER**2
    if here is None or not _is_precise(here) or (near and not _is_over(width.crest_at, CREST_SECONDS, now)):
        return width
    # half of the way by ratio is the geometric mean
    to = max(width.width + 1, int(width.width * WIDER)) if near else math.isqrt(width.width * crest)
    return _on_trial(width, to, here, f"trying more than {width.width}", now)


def _shrinks(width: Width, seen: Signals) -> str | None:
    if seen.load.queue > max(1.0, LONG_QUEUE * width.width):
        return f"{seen.load.queue:.0f} requests wait in its queue"
    if seen.load.cache > FULL_CACHE and seen.load.queue:
        return f"its KV cache is {seen.load.cache:.0%} full"
    return None


def _holds(width: Width, seen: Signals) -> bool:
    queued = seen.load.queue > max(1.0, BUSY_QUEUE * width.width)
    return width.width >= LEAST_BY_HINTS and (queued or seen.load.cache > BUSY_CACHE)


def _changed(width: Width, to: int, why: str, now: float, *, settles: bool = False) -> Width:
    """Another width, which isn't on trial."""
    update = {"width": to, "why": why, "changed_at": now, "changes": width.changes + 1}
    return width.model_copy(update={**update, "settles": settles, "back": None, "before": None})


def _is_over(since: float, seconds: float, now: float) -> bool:
    """Whether `seconds` have passed; also true of a time in the future, which another host's clock wrote."""
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
            # by turns: else the last by name would never be let in at a width below the number of processes
            for offset in range(left):
                granted[wanting[(turn + offset) % len(wanting)]] += 1
            return granted
        for name in wanting:
            room = demands[name] - granted[name]
            part = min(each, room) if room > 0 else each
            granted[name] += part
            left -= part
    return granted
