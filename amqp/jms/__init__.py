"""What clients of JMS ask for beyond other AMQP clients: message selectors, subscriptions, temporary destinations."""
