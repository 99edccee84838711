"""What the tests of `azure-servicebus` import beside the SDK, and the SDK's sdist has not."""
