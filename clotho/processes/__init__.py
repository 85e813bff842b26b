"""Child processes, process groups, process slots, and liveness heartbeats."""
