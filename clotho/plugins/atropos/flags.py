"""Messages that name flags, in the words of the adapter's command line."""

import re

FLAGS = {
    "--api-key-env": "--env.api_key_variable",
    "--group-size": "--env.group_size",
    "--inference": "--env.inference",
    "--max-tokens": "--env.environment_config '{\"max_token_length\": TOKENS}'",
    "--renderer": "--env.renderer",
    "--run": "--env.run",
    "--store": "--env.store",
    "--temporal": "--env.temporal",
    "--tokenizer": "--env.tokenizer_name",
    "--tool-call-parser": "--env.tool_call_parser",
    "--unsafe-local": "--env.unsafe_local",
    "--dataset": '--env.environment_config \'{"dataset": {"source": SOURCE}}\'',
    "--prompt-field": '--env.environment_config \'{"dataset": {"prompt_field": NAME}}\'',
}
"""The flags of `clotho run` that messages name, and what the adapter calls them."""
_FLAG = re.compile(r"(?<![\w.-])--[a-z][a-z-]*(?![\w.-])")


def with_own_flags(text: str) -> str:
    """The message with the adapter's flags in place of those of `clotho run`."""
    return _FLAG.sub(lambda found: FLAGS.get(found[0], found[0]), text)
