"""Tables and figures from lines: for each experiment a module with `report(lines, out)`. Nothing is fitted here."""
