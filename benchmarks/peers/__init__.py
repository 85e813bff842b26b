"""The same scripted loop through other frameworks, each in a process of an environment with its own packages."""
