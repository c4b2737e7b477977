"""Attacks by ordinary users, tokens, workers and commands. Each must fail, and change nothing."""
