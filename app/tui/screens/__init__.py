"""The screens of the terminal app and its dialogs."""
