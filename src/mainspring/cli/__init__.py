"""The command line: nouns with verbs, and a module for each command without a noun. It imports what a command needs."""
