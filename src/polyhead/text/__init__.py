"""From characters to numbers and back."""
