"""What a deployment tells Clotho: each variable is a setting, each command line is taken."""

from collections.abc import Mapping
from typing import Any

from clotho.config import PREFIX
from tests.docs.test_docs_refer_to_things_that_exist import check_options, is_setting

OTHERS = {
    "AWS_ACCESS_KEY_ID",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "HOME",
    "OPENAI_API_KEY",
    "PATH",
    "PYTHONDONTWRITEBYTECODE",
    "TEMPORAL_ADDRESS",
    "TEMPORAL_NAMESPACE",
}
"""Variables of the libraries that Clotho uses, the interpreter's, and the key that `worker.model_keys` names."""


def check_variables(names: Mapping[str, Any] | list[str]) -> None:
    for name in names:
        assert is_setting(name) if name.startswith(PREFIX) else name in OTHERS, name


def check_command(programs: dict[str, Any], words: list[str]) -> None:
    name, *rest = map(str, words)
    check_options(programs[name], rest, whole=True)
