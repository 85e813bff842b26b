"""The way of groups to the trainer, on which anything may be killed too."""
