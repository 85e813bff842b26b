"""The proof by killing everything: every fault in every phase of a rollout, measured. Run `python -m chaos`."""
