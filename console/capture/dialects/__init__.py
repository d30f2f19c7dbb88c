"""The dialects that agents speak to the capture gateway."""
