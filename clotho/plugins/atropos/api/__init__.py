"""Atropos' trajectory API with a durable queue: atroposlib's application behind a front that writes to disk."""
