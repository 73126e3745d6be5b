"""From files to checked sentence pairs to batches of tensors."""
