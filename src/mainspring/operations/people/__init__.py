"""People: users of tenants, their passwords, invitations and personal tokens."""
