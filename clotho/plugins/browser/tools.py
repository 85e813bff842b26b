"""The browser tools, as a model is offered them."""

from clotho.plugins.browser.calls import BrowserTool
from clotho.tools.schemas import boolean, object_schema, string
from clotho.tools.tool import Arguments, CallContext, ToolOutcome

REF = "The element's ref in the latest snapshot, such as e5 or @e5"
MOST_URL_CHARS = 8_000
MOST_TEXT_CHARS = 50_000


class BrowserNavigate(BrowserTool):
    name = "browser_navigate"
    description = (
        "Open a page in the browser. The result has its URL, title and a snapshot: an accessibility tree in which "
        "elements have refs for browser_click and browser_type. Call it before the other browser tools."
    )
    parameters = object_schema(
        "url", url=string("The address to open, http or https", minLength=1, maxLength=MOST_URL_CHARS)
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserSnapshot(BrowserTool):
    name = "browser_snapshot"
    changes_workspace = False
    description = (
        "Show the page as it is now: an accessibility tree with refs, cut at 8,000 characters. Take one after a "
        "click or other change: refs are those of the latest snapshot."
    )
    parameters = object_schema(
        full=boolean("true shows wrappers and refs of all elements, not only those to act on", default=False)
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserClick(BrowserTool):
    name = "browser_click"
    description = "Click an element, such as a link, a button or a checkbox."
    parameters = object_schema("ref", ref=string(REF, minLength=1, maxLength=40))

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserType(BrowserTool):
    name = "browser_type"
    description = "Fill a text field in place of what it holds, or choose an option of a select by its label."
    parameters = object_schema(
        "ref",
        "text",
        ref=string(REF, minLength=1, maxLength=40),
        text=string("The text, or the option's label", maxLength=MOST_TEXT_CHARS),
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserScroll(BrowserTool):
    name = "browser_scroll"
    description = "Scroll the page by most of a screen, for pages that load more as they are scrolled."
    parameters = object_schema("direction", direction=string("Where to", one_of=("up", "down")))

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserBack(BrowserTool):
    name = "browser_back"
    description = "Go back to the page before this one."
    parameters = object_schema()

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserPress(BrowserTool):
    name = "browser_press"
    description = "Press a key in the element that has the focus, such as Enter, Tab, Escape or ArrowDown."
    parameters = object_schema("key", key=string("The key's name", minLength=1, maxLength=40))

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserGetImages(BrowserTool):
    name = "browser_get_images"
    changes_workspace = False
    description = "List the images of the page, with their addresses, alternative texts and sizes."
    parameters = object_schema()

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserConsole(BrowserTool):
    name = "browser_console"
    description = (
        "Read what the page wrote to its console and its uncaught errors; or evaluate a JavaScript expression in "
        "the page, such as document.title, and read its value."
    )
    parameters = object_schema(
        clear=boolean("true forgets the messages after this call", default=False),
        expression=string("JavaScript to evaluate in the page", maxLength=MOST_TEXT_CHARS),
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)


class BrowserDialog(BrowserTool):
    name = "browser_dialog"
    description = (
        "Answer the alert, confirm or prompt that the page shows. Results tell of one as `pending_dialog`; until "
        "it is answered, the page does nothing else."
    )
    parameters = object_schema(
        "action",
        action=string("accept is OK, dismiss is Cancel", one_of=("accept", "dismiss")),
        prompt_text=string("The answer to a prompt", maxLength=MOST_TEXT_CHARS),
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        return await self.made(arguments, context)
