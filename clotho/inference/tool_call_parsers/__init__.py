"""Tool calls found in a model's text, one dialect per file."""
