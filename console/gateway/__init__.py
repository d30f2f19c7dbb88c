"""Tinker gateways: the health probe, and the embedded CPU gateway."""
