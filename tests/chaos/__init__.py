"""Two ways to disturb a test run (`make chaos`). They find tests that depend on timing or on an order of events."""
