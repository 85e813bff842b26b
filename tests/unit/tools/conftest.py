from hypothesis import settings

# A busy machine is no finding.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
