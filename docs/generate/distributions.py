"""The table of the named distributions of toolsets, in the page that has its markers."""

import re

from clotho.tools.distributions import DISTRIBUTIONS
from docs.generate.fields import code, table

MARKED = re.compile(r"(<!-- distributions -->\n).*?(<!-- end of distributions -->)", re.DOTALL)


def with_distributions(page: str) -> str:
    """`page`, with the probabilities of every named distribution between its markers."""
    rows = (
        (code(name), ", ".join(f"{code(toolset)} {chance:g}" for toolset, chance in sorted(chances.items())))
        for name, chances in sorted(DISTRIBUTIONS.items())
    )
    text = table(("distribution", "probability of each toolset"), rows)
    return MARKED.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)
