"""Costs of Clotho, beside those of its foundations; `make bench` prints all of them."""
