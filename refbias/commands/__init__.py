"""Commands told by their first word: each module has ``main(arguments)``, which returns the exit status."""
