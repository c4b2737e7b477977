"""Job files: apply what they have in one transaction, plan it, and export what there is."""
