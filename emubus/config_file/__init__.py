"""Config.json: the file of Microsoft's emulator, with extensions, read into descriptions."""
