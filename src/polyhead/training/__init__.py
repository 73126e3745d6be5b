"""From a configuration to a trained run directory."""
