"""A stranger does the worst that can be done without a key, while another client sends."""
