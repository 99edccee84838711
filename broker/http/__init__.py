"""The HTTP face of the broker: health now, management and control later."""
