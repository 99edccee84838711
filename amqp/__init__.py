"""The wire adapter: AMQP 1.0 as Service Bus SDKs speak it. Knows Proton and the broker's verbs, decides nothing."""
