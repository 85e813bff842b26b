"""The tools that call other models, over OpenAI-compatible APIs."""
