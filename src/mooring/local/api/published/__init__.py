"""What clients read to learn what is served and how it is shown: discovery, OpenAPI, tables."""
