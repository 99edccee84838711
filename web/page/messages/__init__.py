"""Finding messages for a page: what a search asks for, where it looks, which columns it shows."""
