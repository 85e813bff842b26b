"""Rows of real files, and of a folder loaded by the `datasets` package, as items."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from clotho.cli.dataset_options import DatasetOptions
from clotho.dataset_config import DatasetConfig, ItemChoice
from clotho.datasets.items import dataset_items
from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext
from clotho.environment.in_process import InProcessEnvironment, SharedProcess
from clotho.errors import InvalidInput

ROWS: list[Item] = [
    {"name": "a", "question": "1 + 1?", "level": 1},
    {"name": "b", "question": "2 \u2028 2?", "level": 2},
    {"name": "c", "question": "3 + 3?", "level": 2},
    {"name": "d", "question": "4 + 4?", "level": 3},
]


def written(folder: Path, ending: str) -> Path:
    """ROWS as a file of a format."""
    path = folder / f"rows{ending}"
    match ending:
        case ".jsonl":
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in ROWS))
        case ".parquet":
            parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
        case ".csv":
            lines = [",".join(ROWS[0]), *(",".join(map(str, row.values())) for row in ROWS)]
            path.write_text("\ufeff" + "\r\n".join(lines))
    return path


def names(source: Path, **config: Any) -> str:
    return "".join(
        str(item["name"])
        for item in dataset_items(DatasetConfig(source=str(source), **config).with_absolute_source())
    )


@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".csv"])
def test_rows_are_items(tmp_path: Path, ending: str) -> None:
    config = DatasetConfig(source=str(written(tmp_path, ending)), prompt_field="question", id_field="name")
    items = list(dataset_items(config))
    expected = [{**row, "prompt": row["question"], "id": row["name"]} for row in ROWS]
    if ending == ".csv":
        expected = [{**item, "level": str(item["level"])} for item in expected]
    assert items == expected


def test_rows_are_filtered_shuffled_and_limited(tmp_path: Path) -> None:
    file = written(tmp_path, ".jsonl")
    assert names(file, filters={"level": 2}) == "bc"
    assert names(file, filters={"level": [1, 3], "name": "d"}) == "d"
    assert names(file, limit=3) == "abc"
    assert names(file, id_field="name", ids="d, b") == "bd"
    shuffled = [names(file, shuffle=seed) for seed in range(8)]
    assert shuffled == [names(file, shuffle=seed) for seed in range(8)]
    assert len(set(shuffled)) > 4
    assert {"".join(sorted(order)) for order in shuffled} == {"abcd"}
    assert names(file, shuffle=3, limit=2) == names(file, shuffle=3)[:2]


def test_rows_are_sampled(tmp_path: Path) -> None:
    file = written(tmp_path, ".jsonl")
    samples = [names(file, shuffle=seed, sample=2) for seed in range(8)]
    assert samples == [names(file, shuffle=seed, sample=2) for seed in range(8)]
    assert len(set(samples)) > 4
    assert {len(set(sample)) for sample in samples} == {2}
    assert names(file, sample=2) == "".join(sorted(names(file, sample=2)))
    assert names(file, sample=9) == "abcd"
    assert len(names(file, filters={"level": 2}, sample=1, limit=1)) == 1


def test_a_folder_is_loaded_by_the_datasets_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "folder"
    folder.mkdir()
    written(folder, ".jsonl").rename(folder / "train.jsonl")
    assert names(folder) == "abcd"
    assert names(folder, split="train[1:3]") == "bc"
    with pytest.raises(InvalidInput, match="no_such"):
        names(folder, split="no_such")
    (folder / "test.jsonl").write_text(json.dumps(ROWS[0]))
    with pytest.raises(InvalidInput, match="give one of its splits: train, test"):
        names(folder)


@pytest.mark.parametrize(
    ("file", "content", "config", "said"),
    [
        ("a.jsonl", b'{"a": 1}\n[]\n', {}, r"a\.jsonl:2: not a JSON object"),
        ("a.jsonl", b'{"a": NaN}\n', {}, r"a\.jsonl:1: NaN"),
        ("a.jsonl", b'{"a": 1}', {"prompt_field": "q"}, "row 0: no field 'q' among a"),
        ("a.jsonl", b'{"id": 1}', {"ids": ("1", "x", "y")}, "no item has the id x, y"),
        ("a.csv", b"a,b\n1,2\n1\n", {}, r"a\.csv:3: 1 values for 2 columns"),
        ("a.csv", b"a,a\n1,2\n", {}, r"a\.csv:1: the columns need names"),
        ("a.csv", b"a\n\xff\n", {}, r"a\.csv:1: not CSV in UTF-8"),
        ("a.csv", b'a\n"x\n', {}, "not CSV"),
        ("a.parquet", b"PAR1", {}, "not a Parquet file"),
    ],
)
def test_a_bad_dataset_is_named(
    tmp_path: Path, file: str, content: bytes, config: dict[str, Any], said: str
) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        list(dataset_items(DatasetConfig(source=str(tmp_path / file), **config)))


def test_what_is_no_json_is_named(tmp_path: Path) -> None:
    table = pyarrow.table({"ok": [1, 2], "picture": [b"\x00", b"\x01"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=r"row 0: picture: .*bytes"):
        list(dataset_items(DatasetConfig(source=str(tmp_path / "a.parquet"))))


def test_a_file_that_changed_since_the_run_began_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, ".jsonl")
    config = DatasetConfig(source=str(path)).with_absolute_source()
    path.write_text('{"name": "other"}')
    with pytest.raises(InvalidInput, match="another file than the one that the run began with"):
        list(dataset_items(config))


def test_options_override_the_configured_dataset(tmp_path: Path) -> None:
    file = written(tmp_path, ".jsonl")
    configured = DatasetConfig(source=str(file), shuffle=1, limit=2)
    options = DatasetOptions(limit=3, filters=["level=2", "name=b"], ids="b")
    changed = options.dataset_config(configured)
    assert changed is not None
    assert (changed.shuffle, changed.limit, changed.ids) == (1, 3, ("b",))
    assert changed.filters == {"level": 2, "name": "b"}
    assert DatasetOptions().dataset_config(None) is None
    with pytest.raises(InvalidInput, match="--filter, --limit: give --dataset"):
        DatasetOptions(limit=1, filters=["a=1"]).dataset_config(None)
    with pytest.raises(InvalidInput, match="no such folder"):
        DatasetOptions(dataset="./nowhere").dataset_config(None)
    with pytest.raises(InvalidInput, match="is a file, which has no split"):
        DatasetOptions(dataset=str(file), split="train").dataset_config(None)
    with pytest.raises(InvalidInput, match="--items or --dataset"):
        DatasetOptions(dataset=str(file)).given_items(file)


class Answers(Environment):
    """It has neither items nor prompts of its own."""

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return 1.0


async def drawn_of(environment: Environment, number: int) -> tuple[Item, ...]:
    return await InProcessEnvironment(environment, SharedProcess()).next_items(number)


async def test_an_environment_without_items_takes_those_of_a_dataset(tmp_path: Path) -> None:
    dataset = DatasetConfig(source=str(written(tmp_path, ".csv")), prompt_field="question")
    environment = Answers(EnvironmentConfig(dataset=dataset))
    first, second = await drawn_of(environment, 2)
    assert [environment.format_prompt(item) for item in (first, second)] == ["1 + 1?", "2 \u2028 2?"]
    assert len(await drawn_of(environment, 9)) == 2
    with pytest.raises(InvalidInput, match="give the run a --dataset"):
        await drawn_of(Answers(EnvironmentConfig()), 1)
    with pytest.raises(InvalidInput, match="--prompt-field"):
        environment.format_prompt({"question": "?"})


class OwnItems(Answers):
    """It has the items of ROWS."""

    async def setup(self) -> None:
        self._left = [{**row, "id": row["name"]} for row in ROWS]

    async def get_next_item(self) -> Item | None:
        return self._left.pop(0) if self._left else None


class Endless(Answers):
    async def get_next_item(self) -> Item | None:
        return {}


async def chosen(**choice: Any) -> str:
    environment = OwnItems(EnvironmentConfig(item_choice=ItemChoice(**choice)))
    await environment.setup()
    drawn = [await drawn_of(environment, 1) for _ in range(5)]
    return "".join(str(item["name"]) for items in drawn for item in items)


async def test_an_environments_own_items_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await chosen(ids=("d", "b")) == "bd"
    assert sorted(await chosen(shuffle=2)) == list("abcd")
    assert len({await chosen(shuffle=seed) for seed in range(8)}) > 4
    assert len(await chosen(sample=3)) == 3
    with pytest.raises(InvalidInput, match="OwnItems: no item has the id e"):
        await chosen(ids=("a", "e"))
    monkeypatch.setattr("clotho.environment.environment.MOST_CHOSEN_FROM", 100)
    with pytest.raises(InvalidInput, match="Endless has over 100 items, too many to choose from"):
        await drawn_of(Endless(EnvironmentConfig(item_choice=ItemChoice(sample=1))), 1)


def test_options_choose_items_without_a_dataset(tmp_path: Path) -> None:
    options = DatasetOptions(ids="b, d,c", shuffle=1, sample=2)
    assert options.dataset_config(None) is None
    assert options.item_choice() == ItemChoice(ids=("b", "d", "c"), shuffle=1, sample=2)
    assert options.number_chosen == 2
    assert (DatasetOptions(ids="b,d").number_chosen, DatasetOptions(shuffle=1).number_chosen) == (2, None)
    assert DatasetOptions().item_choice() is None
    file = tmp_path / "items.jsonl"
    file.write_text("".join(json.dumps({"id": row["name"]}) + "\n" for row in ROWS))
    given = DatasetOptions(ids="d,a").given_items(file)
    assert given == ({"id": "a"}, {"id": "d"})


def test_a_configuration_without_a_choice_is_written_as_before() -> None:
    assert "item_choice" not in EnvironmentConfig().model_dump(mode="json")
    assert "sample" not in DatasetConfig(source="a.jsonl").model_dump(mode="json")
