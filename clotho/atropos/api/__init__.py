"""Atropos' trajectory API with a queue that outlives its process: atroposlib's own, behind a durable front."""
