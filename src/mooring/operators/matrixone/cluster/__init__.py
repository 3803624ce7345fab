"""A whole cluster: its sets in their order, its first SQL user, and where clients connect to."""

__all__: list[str] = []
