"""Notices of a run's life to people: a command or a webhook."""
