"""Charts as rows of inked text. All pure; ``specpanel.app.tui.widgets`` puts it on a screen."""
