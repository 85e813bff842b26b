"""The toolset "file": reading, writing, patching and searching a sandbox's files; all text logic is the host's."""
