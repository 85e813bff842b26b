"""Three hosts, a production Temporal server and an S3 server on one machine, and what may go wrong between them."""
