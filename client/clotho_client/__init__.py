"""The client of Clotho's rollout API: `client` sends requests, `orders` and `rows` have their messages.

It imports nothing of Clotho, whose server uses the same messages.
"""
