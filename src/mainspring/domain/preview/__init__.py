"""What schedules do, for people: previews, explanations, and the heat map of a tenant."""
