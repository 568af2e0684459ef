"""Everything of specpanel that works without a terminal."""
