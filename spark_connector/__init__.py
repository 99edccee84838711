"""A client of the wire for Spark. Imports none of the other folders."""
