"""The command line: one module per command. Commands import heavy modules when they run, so that help is fast."""
