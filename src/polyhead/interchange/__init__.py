"""Weights and configurations of others in our names, and ours in theirs."""
