"""One partition of an entity as a pure state machine (R2): requests in, a `Step` of changes and effects out."""
