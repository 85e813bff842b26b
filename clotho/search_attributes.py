"""Names and types of the search attributes that a Temporal namespace needs."""

RUN = "ClothoRun"
ENVIRONMENT = "ClothoEnvironment"
OUTCOME = "ClothoOutcome"
REWARD = "ClothoReward"

SEARCH_ATTRIBUTES = {RUN: "Keyword", ENVIRONMENT: "Keyword", OUTCOME: "Keyword", REWARD: "Double"}
"""As `temporal server start-dev --search-attribute Name=Type` takes them."""
