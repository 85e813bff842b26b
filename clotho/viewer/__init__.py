"""The web pages of `clotho view`: runs, groups and rollouts of a store, for a browser on this machine."""
