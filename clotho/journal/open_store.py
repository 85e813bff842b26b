"""The store at a configured location."""

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from clotho.config import S3Settings
from clotho.errors import InvalidInput
from clotho.journal.folder import FilesystemStore
from clotho.journal.store import Store


def open_store(location: str, s3: S3Settings) -> Store:
    """Open the store at `location`, a folder or s3://bucket/prefix; blocks while it is tried out.

    Raises InvalidInput that says what to change, and StoreUnavailable where no server answers.
    """
    if "://" not in location:
        return FilesystemStore(Path(location))
    place = urlsplit(location)
    if place.scheme != "s3" or not place.netloc or "@" in place.netloc or place.query or place.fragment:
        raise InvalidInput(f"store {location!r}: give a folder or s3://bucket/prefix")
    if find_spec("boto3") is None:
        raise InvalidInput(f"store {location}: install what S3 needs with: pip install 'clotho-rollouts[s3]'")
    from clotho.journal.s3 import S3Store

    return S3Store(place.netloc, place.path.strip("/"), s3)


def open_existing(location: str, s3: S3Settings) -> Store:
    """Open a store for reading, without creating a mistyped folder; else like `open_store`."""
    if "://" not in location and not Path(location).is_dir():
        raise InvalidInput(
            f"there is no store at {location}: run this where the run was started, or give --store"
        )
    return open_store(location, s3)
