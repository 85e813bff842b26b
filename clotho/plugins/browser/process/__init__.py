"""The process of a host's browser: Chromium without a network of its own, and a context for each rollout."""
