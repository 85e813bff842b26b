"""Clotho: LLM-agent rollouts as durable workflows that become training data."""
