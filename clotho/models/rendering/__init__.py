"""Conversations as the tokens that a model reads, and sampled tokens as messages."""
