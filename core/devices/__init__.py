"""The machine: what the host and its devices are doing."""
