"""AMQP links: how they attach, and what flows over each kind of them."""
