"""One message as bytes: as it arrives, as it is stored, as it is delivered. Does not know queues and stores."""
