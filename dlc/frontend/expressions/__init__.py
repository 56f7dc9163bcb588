"""Expressions of a model text: names, operators, calls of builtins, choices and derivatives."""
