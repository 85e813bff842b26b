"""Configuration of a dataset whose rows are a run's items: clotho.yaml, flags, an environment's configuration."""

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from clotho.errors import InvalidInput
from clotho.frozen_model import WHERE_SET, FrozenModel

FORMATS = (".jsonl", ".parquet", ".csv")
"""Endings of the files that are read without the `datasets` package."""


class ItemChoice(FrozenModel):
    """The choice and order of items."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[str, ...] = ()
    """The ids of the only items to take; none: all of them."""
    shuffle: int | None = None
    """The seed of the order; None: as they come."""
    sample: int | None = Field(default=None, ge=1)
    """Number of items to take by chance, with the seed of `shuffle` or else 0; None: all of them."""


class DatasetConfig(FrozenModel):
    """The source of a dataset's rows, and the choice and order of those that become items."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(min_length=1)
    """A .jsonl, .parquet or .csv file, a folder, or a dataset's name on the Hugging Face hub."""
    subset: str | None = None
    """The configuration of a Hugging Face dataset that has several."""
    split: str | None = None
    """The split of a folder or a Hugging Face dataset, such as train or test[:100]; None where there is one."""
    revision: str | None = None
    """The branch, tag or commit of a Hugging Face dataset."""
    prompt_field: str | None = None
    """The field that becomes an item's `prompt`, which is what the agent is asked."""
    id_field: str = "id"
    """The field that becomes an item's `id`."""
    filters: dict[str, JsonValue] = {}
    """Field -> the value that rows must have in it, or a list of such values."""
    ids: tuple[str, ...] = ()
    """The ids of the only rows to take; none: all of them."""
    shuffle: int | None = None
    """The seed of the order; None: as in the dataset."""
    sample: Annotated[int | None, WHERE_SET] = Field(default=None, ge=1)
    """Number of rows to take by chance, in their order, with the seed of `shuffle` or else 0; None: all of them."""
    limit: int | None = Field(default=None, ge=1)
    """Most rows to take, after filters and shuffling."""
    digest: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of a file's content: another one is refused."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @field_validator("ids", mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        return (
            [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
        )

    @model_validator(mode="after")
    def _fields_that_say_nothing(self) -> "DatasetConfig":
        if self.kind == "file" and (given := self._set("subset", "split", "revision")):
            raise ValueError(f"{self.source} is a file, which has no {', '.join(given)}")
        return self

    @property
    def choice(self) -> ItemChoice:
        return ItemChoice(ids=self.ids, shuffle=self.shuffle, sample=self.sample)

    @property
    def kind(self) -> Literal["file", "folder", "hub"]:
        if Path(self.source).suffix in FORMATS:
            return "file"
        return "folder" if self.source.startswith(("/", "./", "../", "~")) else "hub"

    def with_absolute_source(self) -> "DatasetConfig":
        """The configuration with an absolute path and a file's digest, for workers that start in another folder.

        Raises InvalidInput where there is no such file or folder.
        """
        path = Path(self.source).expanduser()
        # a name without a path in front may still be a folder here
        if self.kind == "hub" and not path.is_dir():
            return self
        path = path.resolve()
        if self.kind != "file":
            if not path.is_dir():
                raise InvalidInput(f"dataset {self.source}: there is no such folder")
            return self.model_copy(update={"source": str(path)})
        return self.model_copy(update={"source": str(path), "digest": file_digest(path)})

    def _set(self, *names: str) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content; raises InvalidInput where it can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInput(f"dataset {path}: {error.strerror}") from error
