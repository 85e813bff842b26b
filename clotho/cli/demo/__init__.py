"""`clotho demo`: the whole chain on one machine, with crashes or a trainer if asked for."""
