"""The command line: read words, call one function of the API, print what it says."""
