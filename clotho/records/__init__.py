"""What crosses the boundary between workflows and activities: references and small counters, never content."""
