"""The browser's process with limits that no machine crosses by itself: `patient_browser.py FOLDER CHROMIUM`."""

from clotho.plugins.browser.process import actions, screenshots, server, session
from tests.support import PATIENCE_SECONDS

LIMITS = (
    *((module, "ACTION_SECONDS") for module in (actions, screenshots, session)),
    (screenshots, "BOX_SECONDS"),
    (session, "SETTLE_SECONDS"),
)


def main() -> None:
    for module, limit in LIMITS:
        assert hasattr(module, limit)
        setattr(module, limit, PATIENCE_SECONDS)
    server.main()


if __name__ == "__main__":
    main()
