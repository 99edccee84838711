"""Programs over the management SDKs of other languages, each of which goes the same steps."""
