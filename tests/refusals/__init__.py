"""Every refusal of the service whose text is known: a table, and tests that provoke each row over each face."""
