"""The tools that find, read and write skills: instructions for kinds of work."""
