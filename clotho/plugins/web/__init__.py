"""Web tools, and the providers that search for them."""

from clotho.plugin import Plugin

PLUGIN = Plugin(
    "web",
    run_settings="clotho.plugins.web.settings:WebSettings",
    tools=("clotho.plugins.web.web_extract:WebExtract", "clotho.plugins.web.web_search:WebSearch"),
)
