"""What everything runs on: 64-bit numbers, compiled functions, files, blocks of rows."""
