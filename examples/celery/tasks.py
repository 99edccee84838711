"""A Celery task over kombu's transport azureservicebus. Not run by a test of this repository; tried by hand.

The transport has no setting for a port or a CA and always uses TLS on the service's ports, so:

1. emubus serve --tls dev --tls-port 443,5671       (ports below 1024 need a privilege)
2. 127.0.0.1 mybus.servicebus.windows.net           (a line of the hosts file; the certificate has such names)
3. cat emubus-data/tls/ca.pem >> "$(python -m certifi)"
4. pip install "celery[azureservicebus]"; celery --app tasks worker, and in another terminal: python tasks.py
"""

from celery import Celery

app = Celery("tasks", broker="azureservicebus://RootManageSharedAccessKey:SAS_KEY_VALUE@mybus")


@app.task
def add(first: int, second: int) -> int:
    """The sum."""
    return first + second


if __name__ == "__main__":
    add.delay(2, 3)
