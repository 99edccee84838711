"""How the connector reaches the service: connection strings, credentials, TCP, TLS and WebSocket streams."""
