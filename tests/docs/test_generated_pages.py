"""The computed pages are as the code is, and every page is part of the site."""

import re

from clotho.errors import Rejection
from docs.generate.pages import DOCS, ROOT, generated_pages


def test_pages_are_as_the_code_is() -> None:
    stale = [path.name for path, text in generated_pages().items() if path.read_text() != text]
    assert stale == [], "run: python -m docs.generate"


def test_the_page_of_atropos_names_every_reason_for_which_a_group_is_dropped() -> None:
    page = (DOCS / "atropos.md").read_text()
    listed = page.partition("A group that isn't delivered says why")[2].partition("\n- ")[0]
    named = set(re.findall(r"`([a-z_]+)`", listed))
    # Groups of chat mode are delivered where the configuration accepts them.
    assert named == set(Rejection) - {Rejection.CHAT_MODE}


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} <= set(listed)


def test_the_lock_of_the_site_has_hashes_and_names_no_host() -> None:
    lock = (ROOT / "requirements-docs.lock").read_text()
    packages = re.split(r"\n(?=\w)", lock.strip())
    assert len(packages) > 10
    assert [each.splitlines()[0] for each in packages if "--hash=sha256:" not in each] == []
    assert re.findall(r"https?://|--index-url|--find-links", lock) == []


def test_the_site_is_built_strictly() -> None:
    """With --quiet, mkdocs counts no warnings, and broken links pass."""
    [build] = [line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line]
    assert "--strict" in build and "--quiet" not in build
