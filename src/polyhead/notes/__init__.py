"""Claims of the notes, executable."""
