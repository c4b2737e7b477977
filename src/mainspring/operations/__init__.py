"""The operations of the product: submit, change, claim, report, exchange and read."""
