"""The connector as a whole, as users run it: processes that are killed, stores that fail, a cluster, both SDK ends."""
