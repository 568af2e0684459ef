"""Joins what the engine, the devices and the traffic say into one Frame a second."""
