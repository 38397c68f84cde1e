"""The version, which nothing heavy is imported for."""

VERSION = "0.2.0"
