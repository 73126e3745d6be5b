"""Exchange of weights with Hugging Face and timm."""
