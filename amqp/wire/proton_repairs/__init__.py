"""What is corrected in the frames that Proton reads and writes: bytes in, bytes out, nothing of links.

Written for python-qpid-proton 0.40.0, which `pyproject.toml` pins; each file says what Proton does, and the tests that
fail once it does otherwise. To try a newer Proton, raise the pin and run `pytest tests/amqp`: a repair whose tests pass
without it can go.

* `padding`: Proton leaves trailing nulls out; Python clients before 7.15 take fields by position.
* `last_words`: Proton's own `close` has two fields and conditions that no standard has; freed links settle deliveries.
* `flow_rewriter`: Proton answers neither a drain without credit nor an echo.
* `delivery_ids`: Proton closes the connection for delivery-ids out of order.

What Proton must not see at all, or see alone, is decided in `handles` and `frame_reader`.
"""
