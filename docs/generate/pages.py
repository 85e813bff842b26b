"""Every page with a computed part, and its text."""

from pathlib import Path

from docs.generate.commands import commands_page
from docs.generate.distributions import with_distributions
from docs.generate.examples import with_examples
from docs.generate.rollout_api import rollout_api_page
from docs.generate.settings import settings_page
from docs.generate.tokens import tokens_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def generated_pages() -> dict[Path, str]:
    """The text that each of these files should have, by path."""
    shown = {
        path: with_distributions(with_examples(path.read_text(), ROOT)) for path in sorted(DOCS.rglob("*.md"))
    }
    return {
        **{path: text for path, text in shown.items() if text != path.read_text()},
        DOCS / "commands.md": commands_page(),
        DOCS / "rollout-api.md": rollout_api_page(),
        DOCS / "settings.md": settings_page(),
        DOCS / "tokens.md": tokens_page(),
    }
