"""The embedded Korean-English corpus: generated sentences about schedules."""
