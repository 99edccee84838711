"""What a user sees of running queries: `progress` reports what each batch did, `drains` tells of a second drain.

Knows Spark's progress reports and the offsets in them. Does not connect to the service.
"""
