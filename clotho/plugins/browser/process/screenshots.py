"""Screenshots of pages, with the refs of elements drawn into them where that is asked for."""

import asyncio
import base64
from typing import Any

from playwright.async_api import Error, Page

from clotho.plugins.browser.process import snapshots
from clotho.plugins.browser.process.session import ACTION_SECONDS, VIEWPORT, Session

QUALITY = 80
MOST_BOXES = 80
BOX_SECONDS = 1.0
# the page's styles don't reach the boxes in a shadow root; nor do its scripts, as it is closed
DRAW = """(boxes) => {
    const host = document.createElement('div');
    const root = host.attachShadow({mode: 'closed'});
    for (const box of boxes) {
        const frame = document.createElement('div'), label = document.createElement('span');
        Object.assign(frame.style, {position: 'fixed', left: box.x + 'px', top: box.y + 'px', zIndex: 2147483647,
            width: box.width + 'px', height: box.height + 'px', outline: '2px solid #d00', pointerEvents: 'none'});
        Object.assign(label.style, {background: '#d00', color: '#fff', font: '11px monospace'});
        label.textContent = box.ref;
        frame.append(label);
        root.append(frame);
    }
    document.documentElement.append(host);
    return host;
}"""
ERASE = "host => host.remove()"

Fields = dict[str, Any]


async def screenshot(session: Session, arguments: dict[str, Any]) -> Fields:
    """Attach an image of what the page shows now to the answer."""
    boxes = await _boxes(session) if arguments.get("annotate", False) else []
    taken = await session.until_dialog(_taken(session.page, boxes))
    if taken is None:
        return {"pending_dialog": session.asked}
    session.attached["screenshot"] = base64.b64encode(taken).decode()
    annotated = {"annotations": [box["ref"] for box in boxes]} if boxes else {}
    return {**await session.place(), **annotated}


async def _taken(page: Page, boxes: list[Fields]) -> bytes:
    drawn = await page.evaluate_handle(DRAW, boxes) if boxes else None
    try:
        return await page.screenshot(type="jpeg", quality=QUALITY, timeout=ACTION_SECONDS * 1000)
    finally:
        if drawn is not None:
            await drawn.evaluate(ERASE)


async def _boxes(session: Session) -> list[Fields]:
    """Find the boxes of the elements in view that can be acted on."""
    refs = snapshots.REF.findall(snapshots.compact(await session.tree()))[:MOST_BOXES]
    found = await asyncio.gather(*(_box(session, ref) for ref in refs))
    return [box for box in found if box is not None]


async def _box(session: Session, ref: str) -> Fields | None:
    try:
        box = await session.page.get_by_ref(ref).bounding_box(timeout=BOX_SECONDS * 1000)
    except Error:  # it has gone meanwhile
        return None
    if box is None or not (-box["width"] < box["x"] < VIEWPORT["width"]):
        return None
    return {"ref": ref, **box} if -box["height"] < box["y"] < VIEWPORT["height"] else None
