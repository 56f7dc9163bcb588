"""A call of an entry point: arguments, named sizes, working memory, results, status."""
