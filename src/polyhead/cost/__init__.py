"""Cost of a model before it is trained: parameters, FLOPs and memory."""
