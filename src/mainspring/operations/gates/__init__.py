"""Gates: limits of queues and tenants at the claim. How a server knows them, how a claim passes, how they change."""
