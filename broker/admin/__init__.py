"""Administration of a namespace: entities and rules, maintenance, reports, the check of a data folder."""
