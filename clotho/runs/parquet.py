"""Parquet files of a run's rollouts, as the `datasets` package loads them; pyarrow is needed for these alone."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from clotho.errors import InvalidInput

PARQUET = ".parquet"
AS_JSON = ("artifacts", "children", "item", "repairs", "reward_breakdown", "tools")
"""Columns whose values have no schema of their own: text in JSON."""

Line = Mapping[str, JsonValue]


@contextmanager
def parquet_file(path: Path, schema: Callable[[Any], Any]) -> Iterator[Callable[[Sequence[Line]], None]]:
    """Yield a function that adds rows to a file of this `schema`, which is given pyarrow.

    Raises InvalidInput where pyarrow is missing.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidInput("Parquet files need pyarrow: pip install 'clotho-rollouts[datasets]'") from error
    columns = schema(pyarrow)
    with parquet.ParquetWriter(path, columns) as writer:
        yield lambda rows: writer.write_table(pyarrow.Table.from_pylist(list(rows), schema=columns))


def rollouts_schema(pyarrow: Any) -> Any:
    """Columns of rollouts in the OpenAI format."""
    text, whole, number = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    function = pyarrow.struct([("name", text), ("arguments", text)])
    call = pyarrow.struct([("id", text), ("type", text), ("function", function)])
    texts = ("role", "content", "reasoning_content", "tool_call_id", "name")
    message = pyarrow.struct([*((name, text) for name in texts), ("tool_calls", pyarrow.list_(call))])
    counts = ("turns", "tool_errors", "defective_calls", "sampled_tokens", "resumed_turns")
    words = ("rollout", "group", "replacement_of", "reward_error", "outcome", "limit", *AS_JSON)
    return pyarrow.schema(
        [
            ("messages", pyarrow.list_(message)),
            ("reward", number),
            *((name, pyarrow.list_(text)) for name in ("disturbances", "sandbox_losses")),
            *((name, whole) for name in counts),
            *((name, text) for name in words),
        ]
    )


def rollout_row(line: Line) -> Line:
    """A line of the messages format as a row: what has no schema of its own becomes text."""
    messages = line["messages"]
    assert isinstance(messages, list)
    told = {name: json.dumps(line[name]) for name in AS_JSON if line[name] is not None}
    return {**line, **told, "messages": [_message(each) for each in messages if isinstance(each, dict)]}


def _message(message: dict[str, JsonValue]) -> JsonValue:
    content = message["content"]
    return (
        # the column is text: content in parts goes in as JSON
        message if content is None or isinstance(content, str) else message | {"content": json.dumps(content)}
    )
