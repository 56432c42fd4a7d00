from __future__ import annotations

import pytest

from edgedraft.errors import VersionError
from edgedraft.protocol.messages import PROTOCOL_VERSION
from edgedraft.protocol.version import check_version


def test_own_version_passes() -> None:
    check_version(PROTOCOL_VERSION)


@pytest.mark.parametrize(
    ("version", "older"), [(0, "the other side is the older"), (PROTOCOL_VERSION + 1, "this side is the older")]
)
def test_other_version_is_refused_with_both_versions_and_the_remedy(version: int, older: str) -> None:
    with pytest.raises(VersionError, match=f"version is {version}.*version {PROTOCOL_VERSION}.*Install.*{older}"):
        check_version(version)
