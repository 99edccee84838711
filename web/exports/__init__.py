"""The entities of the namespace in other forms than Config.json: an ARM template, commands."""
