"""The certificate that the capture gateway shows."""

from __future__ import annotations

import ssl

from console.errors import UsageError


class _EncryptedKeyError(Exception):
    """A key that wants a password; OpenSSL would ask for it on the terminal."""


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """What a listener needs for TLS.

    Args:
        certificate: PEM file with the certificate and those that signed it; key: PEM file with its private key.

    Raises:
        UsageError: a file cannot be read or holds something else, or the two do not belong together.
    """
    for option, path in (("harbor.tls_certificate", certificate), ("harbor.tls_key", key)):
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as problem:
            raise UsageError(f"{option}={path}: {problem.strerror or problem}; name a readable PEM file") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except _EncryptedKeyError:
        raise UsageError(f"harbor.tls_key={key}: is encrypted; give a key without a password") from None
    except (ssl.SSLError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or ""
        if reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"harbor.tls_key={key}: is not the key of {certificate}; give the two together") from None
        if _holds_a_certificate(certificate):
            raise UsageError(f"harbor.tls_key={key}: holds no private key; name its PEM file") from None
        raise UsageError(f"harbor.tls_certificate={certificate}: holds no certificate; name its PEM file") from None
    return context


def _no_password() -> str:
    raise _EncryptedKeyError


def _holds_a_certificate(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True
