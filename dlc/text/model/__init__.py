"""Model text (`.dlm`): its syntax tree, parser and formatter."""
