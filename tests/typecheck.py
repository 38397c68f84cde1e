"""The runtime type checker of the tests: beartype, with ints taken for floats as everywhere in Python."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
