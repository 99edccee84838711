"""When two texts are the same name, id or key: a table with a source for each cell, and the tests made of it."""
