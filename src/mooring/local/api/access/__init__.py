"""Who sends a request, what they may do, and the tokens and accounts they do it with."""
