"""Tools that agents call, and their dispatch."""
