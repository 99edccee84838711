"""What is put between a link or node and the broker while faults or conditions are on."""
