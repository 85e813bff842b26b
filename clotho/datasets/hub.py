"""Rows of datasets that the `datasets` package loads: of the Hugging Face hub, or a folder."""

from clotho.dataset_config import DatasetConfig
from clotho.datasets.files import EXTRA, Rows
from clotho.errors import InvalidInput, Unavailable


def packaged_rows(config: DatasetConfig) -> Rows:
    """Rows of a dataset of the hub. Raises InvalidInput if it isn't there, Unavailable if the hub isn't reached."""
    try:
        from datasets import DatasetDict, load_dataset
    except ImportError as error:
        raise InvalidInput(f"{config.source}: Hugging Face datasets need a package: {EXTRA}") from error
    try:
        loaded = load_dataset(config.source, config.subset, split=config.split, revision=config.revision)
    except ConnectionError as error:
        raise Unavailable(f"dataset {config.source}: the hub can't be reached: {error}") from error
    except (FileNotFoundError, ValueError) as error:
        raise InvalidInput(f"dataset {config.source}: {error}") from error
    if isinstance(loaded, DatasetDict):
        if len(loaded) != 1:
            raise InvalidInput(f"dataset {config.source}: give one of its splits: {', '.join(loaded)}")
        [loaded] = loaded.values()
    yield from loaded
