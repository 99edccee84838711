"""A whole namespace under random commands and faults, compared with a plain model of Service Bus.

What fails in the field are products of features: an action of a rule times partitions times sessions, a request of
several keys times a store that fails in the middle. So the real `Broker` runs here over 16 stores in memory that tear
and refuse commits, on an event loop and a clock that stand still until they are moved, and is asked for everything at
once; a model that knows no stores says what should have become of each message.

Reading order: `commands` and `shapes` (what is done, and to what, as values), `items`, `memory` and `arrivals` (a
message, what entities remember, and where copies meet), `model` (the service), `world` (the broker, its disks and its
loop), `steps`, `sending`, `sessions`, `requests`, `transactions`, `changes` (each command, done to both), `comparing`
and `searching` (a quiet point), `rules` (what can be broken, by name), `generator` (chance), `running`, `shrinking`,
`cases`, `misjudged` and `misjudged_copies` (what failed once).

One seed is one run. A run that breaks a rule is shrunk to the fewest commands that break the same rule, and printed as
a case for `cases.py` or `misjudged.py`. The long run:

    python -m tests.broker.namespace_simulation --commands 10000000 --jobs 2

That it notices what it should: on a broker without these rules each case of `cases.CASES` fails, and seeds found
(`--find RULE` mutes all other rules):

| rule | what it was | seed | command of that run |
|---|---|---|---|
| one place per key | copies with a new session stayed in the partition of the old one | 5 | 26 |
| spread | forwarded messages without a key went to a few partitions | 21 | 366 |
| schedule: all or none | a part of a refused request was stored | 1 | 171 |
| schedule without key | failed with the one store whose turn it was | 3 | 734 |
| cancel: all or none | a known message was gone although the request was refused | 1 | 319 |
| room | one full partition refused messages without a key | 3 | 405 |
"""
