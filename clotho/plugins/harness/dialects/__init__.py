"""The wire formats in which harnesses ask for the model, by the paths of their requests."""

from collections.abc import Mapping

from clotho.plugins.harness.dialects.chat import Chat
from clotho.plugins.harness.dialects.dialect import Dialect
from clotho.plugins.harness.dialects.messages import Messages
from clotho.plugins.harness.dialects.responses import Responses

BY_PATH: Mapping[str, Dialect] = {dialect.path: dialect for dialect in (Chat(), Responses(), Messages())}
"""Dialects by the path below /v1/ at which each is spoken."""
