"""Experiments for the tests of the runner."""
