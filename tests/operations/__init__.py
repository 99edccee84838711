"""The operations of all faces, from the faces' own tables: which rights each needs, and what it makes of bad values."""
