"""What Service Bus means: entities, partitions, locks, settlement. Knows no socket, no Proton, no LMDB."""
