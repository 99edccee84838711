"""The messages of an entity for an operator: finding, acting on many, editing, exporting. Shared by API and page."""
