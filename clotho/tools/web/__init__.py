"""Web tools, and the providers that search for them."""
