"""What changes or refuses a write after it was allowed: plugins, quotas, policies, webhooks."""
