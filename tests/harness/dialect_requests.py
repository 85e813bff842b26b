"""Requests for the tests of dialects."""

import json
from collections.abc import Mapping
from typing import Any

from clotho.plugins.harness.dialects import BY_PATH
from clotho.plugins.harness.dialects.canonical import Asked

Json = dict[str, Any]

CHAT, RESPONSES, MESSAGES = "chat/completions", "responses", "messages"
GO = [{"role": "user", "content": "Go"}]


def parse(path: str, body: Mapping[str, Any] | bytes) -> Asked:
    raw = body if isinstance(body, bytes) else json.dumps({"model": "policy", **body}).encode()
    return BY_PATH[path].parse(raw)
