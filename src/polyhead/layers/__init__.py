"""The shared parts of every model; imports torch and nothing of ours."""
