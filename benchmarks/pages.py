"""Tables within pages, between the marks <!-- name --> and <!-- /name -->."""

from pathlib import Path


def put(page: Path, name: str, table: str) -> None:
    """The table in place of the one that is there."""
    first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, rest = page.read_text().split(first)
    page.write_text(f"{before}{first}{table}\n{last}{rest.split(last)[1]}")
