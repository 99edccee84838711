"""One partition of an entity as a pure state machine (R2): it takes requests and fills a `Step`."""
