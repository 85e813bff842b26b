"""Options of `clotho run` and `clotho try` that choose the items, or make a dataset's rows the items."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from clotho.cli.assignments import parse_assignments
from clotho.dataset_config import DatasetConfig, ItemChoice
from clotho.datasets.files import jsonl_rows
from clotho.datasets.items import chosen_items
from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.rollouts.item import Item

PANEL = "Dataset"


def option(text: str, metavar: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=PANEL, show_default=False, **more)


@dataclass(frozen=True)
class DatasetOptions:
    """Options for a dataset in place of the environment's own items; in clotho.yaml under `dataset`."""

    dataset: Annotated[
        str | None,
        option(
            "A .jsonl, .parquet or .csv file, a folder, or a name on the Hugging Face hub: its rows are the items.",
            "SOURCE",
        ),
    ] = None
    subset: Annotated[str | None, option("The configuration of a hub's dataset.", "NAME")] = None
    split: Annotated[str | None, option("The split of a folder or a hub's dataset.", "NAME")] = None
    revision: Annotated[str | None, option("The branch, tag or commit of a hub's dataset.", "NAME")] = None
    prompt_field: Annotated[
        str | None, option("The field that the agent is asked: it becomes the item's `prompt`.", "NAME")
    ] = None
    id_field: Annotated[str | None, option("The field that becomes the item's `id`.", "NAME")] = None
    filters: Annotated[
        list[str] | None,
        option("Take rows with this value, or one of a list, in a field.", "NAME=JSON", "--filter"),
    ] = None
    limit: Annotated[int | None, option("Take no more rows than this.", "N", min=1)] = None
    shuffle: Annotated[
        int | None, option("Shuffle the items, of whatever source, with this seed.", "SEED")
    ] = None
    sample: Annotated[int | None, option("Take so many items by chance.", "N", min=1)] = None
    ids: Annotated[str | None, option("Take the items with these ids only.", "ID,ID")] = None

    def dataset_config(self, default: DatasetConfig | None) -> DatasetConfig | None:
        """The dataset that the options name, else the configured one, changed by the options.

        None without a dataset: then options about rows raise InvalidInput, as a file that isn't there does.
        """
        given = self._options_of(DatasetConfig)
        if self.filters is not None:
            given["filters"] = parse_assignments(self.filters, "--filter")
        if self.dataset is not None:
            base: dict[str, Any] = {"source": self.dataset}
        elif default is not None:
            base = default.model_dump()
        elif of_rows := [name for name in given if name not in ItemChoice.model_fields]:
            options = ", ".join(
                "--filter" if name == "filters" else f"--{name.replace('_', '-')}" for name in of_rows
            )
            raise InvalidInput(f"{options}: give --dataset, whose rows it is about")
        else:
            return None
        try:
            return DatasetConfig.model_validate({**base, **given}).with_absolute_source()
        except ValidationError as error:
            faults = "; ".join(fault["msg"] for fault in error.errors())
            raise InvalidInput(f"--dataset: {faults}") from error

    def item_choice(self) -> ItemChoice | None:
        """The choice of items that the options name, if any."""
        given = self._options_of(ItemChoice)
        return ItemChoice(**{**given, "ids": _names(self.ids)}) if given else None

    @property
    def number_chosen(self) -> int | None:
        """The number of items that --ids and --sample leave, if one of them is given."""
        chosen = [len(_names(self.ids))] if self.ids is not None else []
        return min([*chosen, *([self.sample] if self.sample is not None else [])], default=None)

    def _options_of(self, kind: type[FrozenModel]) -> dict[str, Any]:
        """The options with a value that are fields of `kind`."""
        asked = {name: getattr(self, name) for name in kind.model_fields if hasattr(self, name)}
        return {name: value for name, value in asked.items() if value is not None}

    def given_items(self, path: Path | None) -> tuple[Item, ...] | None:
        """The items of a file that the command line sends to the run; raises InvalidInput beside a dataset."""
        if path is None:
            return None
        if self.dataset is not None:
            raise InvalidInput("give --items or --dataset")
        if not (items := tuple(jsonl_rows(path))):
            raise InvalidInput(f"{path} holds no items: write one JSON object a line")
        choice = self.item_choice()
        return items if choice is None else tuple(chosen_items(choice, items, str(path)))


def _names(ids: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (ids or "").split(",") if name.strip())
