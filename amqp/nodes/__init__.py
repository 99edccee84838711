"""The nodes that answer requests: `$cbs` and `$management`."""
