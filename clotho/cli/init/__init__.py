"""`clotho init`: a first environment, a test for it and a settings file."""
