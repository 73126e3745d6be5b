"""Models on disk: self-contained directories that are written atomically and contain no code."""
