"""What a model costs before anything is built: parameters, arithmetic, memory."""
