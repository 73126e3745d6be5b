"""Views of attention: capture, pages and pictures."""
