"""Programs with a loop of their own: what serves them, what they run in, and they themselves are killed."""
