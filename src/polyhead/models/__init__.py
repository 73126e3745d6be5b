"""Model families: one file per paper, and the registry."""
