"""The page of messages: its search form and columns, locks that it takes, and messages that are sent again."""
