"""Sends an order and processes it once, whatever the service does meanwhile; with `fragile` it hopes for the best."""

import os
import sys
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

QUEUE, TRIES, PAUSE_S = "queue.1", 60, 1.0


def send(client: ServiceBusClient, order: str) -> None:
    """Send until it is accepted. The id is the order's: a second try after a lost outcome is no second order."""
    for _ in range(TRIES):
        try:
            with client.get_queue_sender(QUEUE) as sender:
                sender.send_messages(ServiceBusMessage("an order", message_id=order))
                return
        except ServiceBusError:  # also "not found", which no SDK tries again
            time.sleep(PAUSE_S)
    raise SystemExit(f"{order} was not accepted")


def process(client: ServiceBusClient) -> set[str]:
    """Process orders until two receives in a row find nothing: one alone may be empty although there are messages."""
    done: set[str] = set()  # in a program: a table, written in one transaction with the work
    empty_count = 0
    while empty_count < 2:
        try:
            with client.get_queue_receiver(QUEUE, max_wait_time=2) as receiver:
                empty_count += 1
                for message in receiver:
                    empty_count = 0
                    done.add(str(message.message_id))  # the work, unless it is done already
                    try:
                        receiver.complete_message(message)
                    except MessageLockLostError:
                        continue  # it comes again, and is known
        except ServiceBusError:
            time.sleep(PAUSE_S)
    return done


def fragile(client: ServiceBusClient) -> None:
    """One try, and an id that the SDK makes: a refusal loses the order, a second try makes a second one."""
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage("an order"))


with ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"]) as connected:
    if "fragile" in sys.argv:
        fragile(connected)
    else:
        send(connected, "order 7")
        print("done:", *process(connected))
