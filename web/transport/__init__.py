"""HTTP connections: their limits and time-outs, allowed origins, AMQP over WebSocket."""
