"""GRPO on the embedded policy, in numpy: batches from Atropos' API, weights back to the embedded server."""
