"""Keys for ssh between the pods of a job."""

from ddpjob_core.engine.protocols import SshKey


def new_ssh_key() -> SshKey:
    """A new ECDSA key on the curve P-256: quick to generate, and supported by every sshd of the last ten years."""
    # A tenth of the operator's start, for what most operators never need.
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
