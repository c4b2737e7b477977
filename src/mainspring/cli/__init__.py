"""The command line: one file per verb. Verbs import what is heavy when they run, so that help comes quickly."""
