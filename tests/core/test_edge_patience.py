from __future__ import annotations

import pytest

from edgedraft.core.edge_patience import Patience
from edgedraft.types import OnLinkLoss


@pytest.mark.parametrize(("on_link_loss", "limit"), [(OnLinkLoss.LOCAL, 3), (OnLinkLoss.FAIL, 3), (OnLinkLoss.WAIT, 8)])
def test_patience_ends_with_silences_in_a_row(on_link_loss: OnLinkLoss, limit: int) -> None:
    patience = Patience(2.0)
    for _ in range(limit - 1):
        patience.ran_out()
    assert not patience.has_ended(on_link_loss)
    patience.heard()  # whatever it was, the cloud is there
    for _ in range(limit - 1):
        patience.ran_out()
    assert not patience.has_ended(on_link_loss)
    patience.ran_out()
    assert patience.has_ended(on_link_loss)
    patience.progressed()
    assert not patience.has_ended(on_link_loss)


def test_silences_grow_longer_up_to_half_a_minute() -> None:
    patience = Patience(2.0)
    waits_s = []
    for _ in range(8):
        waits_s.append(patience.wait_s)
        patience.ran_out()
    assert waits_s == [2, 4, 8, 16, 30, 30, 30, 30]
