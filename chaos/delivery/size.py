"""How large a run through Atropos is, to all of its processes."""

GROUPS = 4
GROUP_SIZE = 2
GROUPS_PER_BATCH = 2
BATCH = GROUPS_PER_BATCH * GROUP_SIZE
"""In rows."""
MAX_TOKEN_LEN = 4_096
