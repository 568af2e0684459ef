"""The demonstration: a real small model for machines without a hub and without a GPU."""
