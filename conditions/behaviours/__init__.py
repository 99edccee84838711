"""The behaviours: one file for each topic, with the rows of the table and the classes that do what they say."""
