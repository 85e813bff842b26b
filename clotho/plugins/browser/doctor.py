"""The state of the browser, which only runs with the toolset `browser` need."""

from clotho.cli.doctor.findings import Examination, Finding
from clotho.plugins.browser.launch import chromium, lacking


async def examine(examination: Examination) -> list[Finding]:
    return [Finding(f"browser: {lacking() or chromium()}")]
