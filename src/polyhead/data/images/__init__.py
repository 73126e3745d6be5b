"""Image files, folders and data sets."""
