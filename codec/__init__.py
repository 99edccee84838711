"""AMQP 1.0 as bytes: types, values, sections of messages [AMQP 1.6, 3.2]. Pure; imports nothing of emubus."""
