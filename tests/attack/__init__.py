"""Attacks: what somebody tries who may submit jobs, or who owns a folder on the machine. One module per subject."""
