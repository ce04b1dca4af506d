"""Keys for ssh between the pods of a job."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SshKey:
    """A pair of keys, each in OpenSSH's own text form."""

    private: str
    public: str


def new_ssh_key() -> SshKey:
    """A new ECDSA key on the curve P-256: made in a millisecond, and known to every sshd of the last ten years."""
    # Here, since a job that runs without a cluster needs neither a key nor the package that makes it.
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    return SshKey(
        private=key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode(),
        public=key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
    )
