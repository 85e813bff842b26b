"""`clotho doctor`: what needs attention, and what to do about it."""
