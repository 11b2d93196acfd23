"""Job output in a namespace: attempts, history, and the committer that publishes by one rename."""
