"""AMQP connections as bytes: Proton's engine, deliveries, frames, SASL. Knows no entity."""
