"""One message as bytes: what arrives, what is stored, what receivers get. Knows no queue and no storage."""
