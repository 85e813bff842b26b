"""Browser tools: pages in Chromium, in processes apart from the worker's and without a network of their own."""

from clotho.plugin import Plugin

PLUGIN = Plugin(
    "browser",
    run_settings="clotho.plugins.browser.settings:BrowserSettings",
    released="clotho.plugins.browser.client:close_pages",
    doctor={"machine": "clotho.plugins.browser.doctor:examine"},
    tools=(
        *(
            f"clotho.plugins.browser.tools:Browser{name}"
            for name in ("Back", "Click", "Console", "Dialog", "GetImages", "Navigate", "Press", "Scroll")
        ),
        "clotho.plugins.browser.tools:BrowserSnapshot",
        "clotho.plugins.browser.tools:BrowserType",
        "clotho.plugins.browser.vision:BrowserVision",
    ),
)
