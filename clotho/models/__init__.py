"""Model servers: sampling, partial turns, rendering and tool-call parsing."""
