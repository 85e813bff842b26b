"""Programs around Clotho that show how its parts are used from outside."""
