"""Administration of a namespace: everything that changes entities or reports on them.

`administration` creates, updates and deletes entities and rules; `checks` refuses what profile, quotas or outages
forbid; `cleanup` removes the rows of deleted entities; `idle` deletes unused ones; `jms` makes and deletes those of JMS
clients. `maintenance` purges, resets and copies. `overview` and `figures` report without a change; `rule_trial` tests
rules. `folder_view` and `verify` read a data folder without a server.
"""
