"""The name of a parameter."""

RESOURCE_GROUP_PARAM = "resource_group"
