"""Experiments built from the other rooms: compare, break-even, parity, and the store of what they found."""
