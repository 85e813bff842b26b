"""Features that the core doesn't know: each a folder that can be deleted."""
