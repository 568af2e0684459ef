"""Widgets that draw their own rows and refresh only the cells that changed."""
