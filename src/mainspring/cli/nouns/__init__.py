"""The nouns of the command line, one module per noun with its verbs."""
