"""What operators observe workers with: metrics and their dashboard, health checks, traces."""
