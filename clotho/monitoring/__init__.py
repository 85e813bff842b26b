"""What others look at runs with: metrics of worker processes, and a dashboard of them."""
