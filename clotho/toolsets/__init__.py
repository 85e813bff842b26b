"""The tools a model may call. A new tool is one new file in this package."""
