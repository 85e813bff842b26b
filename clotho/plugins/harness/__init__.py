"""Agent harnesses that bring their own loop, whose model calls a gateway answers."""
