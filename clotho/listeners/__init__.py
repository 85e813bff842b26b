"""Bounded, checked HTTP: connections and requests before a server handles them."""
