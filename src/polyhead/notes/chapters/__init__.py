"""One module per chapter; importing one registers its checks."""
