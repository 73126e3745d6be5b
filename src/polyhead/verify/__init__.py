"""The notes, executable: every formula, number and claim with a check that computes it."""
