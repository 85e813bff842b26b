"""The store at a configured location."""

from pathlib import Path
from urllib.parse import urlsplit

from clotho.config import Settings
from clotho.errors import InvalidInput
from clotho.journal.folder import FilesystemStore
from clotho.journal.store import Store
from clotho.plugin import load_with_needs, plugins


def open_store(location: str, settings: Settings) -> Store:
    """Open the store at `location`, a folder or a URL of a plugin's scheme; blocks while it is tried out.

    Raises InvalidInput that says what to change, and StoreUnavailable where no server answers.
    """
    if "://" not in location:
        return FilesystemStore(Path(location))
    scheme = urlsplit(location).scheme
    for plugin in plugins().values():
        if scheme in plugin.stores:
            store: Store = load_with_needs(plugin, plugin.stores[scheme])(location, settings)
            return store
    schemes = sorted(f"{scheme}://…" for plugin in plugins().values() for scheme in plugin.stores)
    raise InvalidInput(f"store {location!r}: give a folder{''.join(f' or {each}' for each in schemes)}")


def open_existing(location: str, settings: Settings) -> Store:
    """Open a store for reading, without creating a mistyped folder; else like `open_store`."""
    if "://" not in location and not Path(location).is_dir():
        raise InvalidInput(
            f"there is no store at {location}: run this where the run was started, or give --store"
        )
    return open_store(location, settings)
