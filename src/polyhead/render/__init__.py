"""HTML and SVG for reports."""
