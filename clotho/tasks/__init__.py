"""Task folders in the layout of Harbor and Terminal-Bench 2: how they are read, and how their rewards are."""
