"""The Temporal cluster: connection, conversion, namespace, and links to its UI."""
