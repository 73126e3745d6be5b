"""Translation systems before the Transformer, for comparison."""
