"""The documentation: pages, and the module that writes those parts of them that are computed."""
