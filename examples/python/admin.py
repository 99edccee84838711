"""Creates a queue, shows it and deletes it. The administration client of Python always uses HTTPS.

emubus serve --tls dev
python admin.py emubus-data/tls/ca.pem
"""

import os
import sys

from azure.servicebus.management import ServiceBusAdministrationClient

CONNECTION_STRING = os.environ.get(
    "SERVICEBUS_ADMIN_CONNECTION_STRING",
    "Endpoint=sb://localhost:5300;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE",
)

with ServiceBusAdministrationClient.from_connection_string(CONNECTION_STRING, connection_verify=sys.argv[1]) as admin:
    admin.create_queue("orders", enable_partitioning=True)
    print(f"created: {admin.get_queue('orders').name}")
    admin.delete_queue("orders")
