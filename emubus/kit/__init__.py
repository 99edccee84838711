"""The test kit's parts; `emubus.testing` is what tests import."""
