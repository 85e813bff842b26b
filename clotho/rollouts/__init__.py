"""Runs, groups and rollouts: messages between workflows and activities, and journal entries."""
