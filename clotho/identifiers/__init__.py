"""Names, workflow ids and journal keys.

No identifier comes from a clock or a random source: a restarted step computes the name it had before.
"""
