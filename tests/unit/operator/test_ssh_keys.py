"""Keys for ssh between pods."""

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from ddpjob_operator.ssh_keys import new_ssh_key


def test_every_key_is_another_one_in_the_form_that_ssh_reads() -> None:
    one, other = new_ssh_key(), new_ssh_key()
    assert one.private != other.private
    private = load_ssh_private_key(one.private.encode(), password=None)
    public = load_ssh_public_key(one.public.encode())
    assert isinstance(private, EllipticCurvePrivateKey)
    assert private.public_key() == public
