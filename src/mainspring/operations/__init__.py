"""What the product does, as verbs: submit, amend, claim, report, exchange, and what can be read of it."""
