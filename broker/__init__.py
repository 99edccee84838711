"""The broker: the meaning of Service Bus, without a socket, Proton or LMDB.

The broker holds one namespace: queues, topics and subscriptions, their messages, locks, sessions and rules. Adapters
(`amqp/`, `web/`, the test kit) translate a protocol to the verbs of `Broker` and import only what `api.py` lists, the
ground floor, `admin`, `model`, `message` and `rules`.

The life of a message:

1. `Sender.send` gets one encoded delivery; the entity parses it once and the router chooses a partition by its key.
2. The partition handle puts a `Send` request into the inbox of the worker that owns the partition's messaging store.
3. The worker takes a batch of requests; each partition answers its requests with a `Step` of changes and effects.
4. The worker commits the changes of all steps in one transaction of the store, then runs the effects: the sender gets
   its answer, and the partition announces messages to the dispatcher of the sub-queue.
5. The dispatcher asks for as many messages as the receivers have credit, the partition locks and delivers them, and the
   receiver settles each lock by its token; forwarded messages leave through an outbox, which the forwarder empties.

Ownership, from the outside in:

- The composition root (`emubus/server.py`) owns the `Broker`, the clock and the stores' folder.
- The `Broker` is a `Namespace` and owns `Administration`, `Maintenance`, the catalog, the transactions, the forwarder,
  the commit threads and one `Worker` per messaging store.
- A `Worker` owns its store and the partitions in it. Only the worker changes a partition.
- An `Entity` owns its partition handles and dispatchers; a link owns its `Sender`, `Receiver` or `SessionReceiver`.

Everything runs on the event-loop thread, with one exception: the commit of a store runs on a pool thread, and the
worker waits for it. The catalog commits on the event loop, because a change of entities is rare.

Reading order:

1. The ground floor: `address`, `outcomes`, `errors`, `ids`, `clock`. Small values and the sources of time and chance.
2. `message/`: the bytes that arrive, are stored and are delivered.
3. `partition/`: the state machine, `contract` and `requests` first. All decisions about messages are here.
4. `stores/`: the worker's batches, commits, timers and outages.
5. `entities/`: routing, dispatching, links, forwarding, transactions, and the running namespace.
6. `model/` and `rules/`: descriptions, limits and the catalog; subscription rules.
7. `admin/`: everything that changes or reports entities.
8. `broker.py` and `api.py`: the facade.
"""
