"""What is said of an address that may not be connected to."""

import ssl

import pytest

from egress.outbound.dialing import Dialer
from egress.refusals import Refused


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("10.1.2.3", "it is private; egress.private_networks can name its network"),
        ("64:ff9b::a00:1", "10.0.0.1: it is private; egress.private_networks can name its network"),
        ("127.0.0.1", "it is this machine's own (loopback)"),
        ("169.254.169.254", "it is link-local, as metadata addresses are"),
    ],
)
def test_the_setting_is_named_where_it_is_meant_for_that(address: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        Dialer((), (), ssl.create_default_context()).check(address, (address,))
    assert str(refused.value).endswith(said)
