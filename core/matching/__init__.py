"""Which drafters fit a target."""
