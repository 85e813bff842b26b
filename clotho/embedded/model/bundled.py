"""The policy that comes with Clotho: where it is, and what it is called."""

from pathlib import Path

TINY = "clotho-tiny"
BUNDLED = Path(__file__).parent / "weights"
"""A Hugging Face folder, tokenizer included."""
