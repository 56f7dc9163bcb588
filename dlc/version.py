"""The version of dlc."""

VERSION = "0.1.0"
