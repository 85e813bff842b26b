"""The HTTP face of the model: OpenAI's chat and text completions, and vLLM's token-in, token-out endpoint."""
