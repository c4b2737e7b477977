"""The event stream: which objects browsers watch, and how changes of them are published."""
