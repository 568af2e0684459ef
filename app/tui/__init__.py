"""The terminal app: it draws Frames and knows nothing of how they came about."""
