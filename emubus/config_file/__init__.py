"""Config.json: the file of Microsoft's emulator, with what it lacks, read into descriptions."""
