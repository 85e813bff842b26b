"""Groups as Atropos takes them: converted, delivered once, and written down."""
