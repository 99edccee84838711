"""HTTP connections: their limits and time-outs, allowed origins, who may do what, AMQP over WebSocket."""
