"""How good is it? Scores that can be compared with those of others."""
