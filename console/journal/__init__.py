"""The journal of a run: event types, writer, reader, seek. Append-only, one writer, the only truth."""
