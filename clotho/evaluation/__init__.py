"""Evaluations: what the scored groups of a run say about its policy, and how surely."""
