"""SQL filters and SQL actions: grammar, syntax tree, compiler [wire 10.9]."""
