"""The LongCat dialect: hermes with tags of its own, and the same differences from vLLM."""

from clotho.models.tool_call_parsers.hermes import HermesParser


class LongcatParser(HermesParser):
    def __init__(self) -> None:
        super().__init__("longcat_tool_call")
