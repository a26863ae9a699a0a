import pytest

from filtering.names import is_system_group, namespace_of, wrap_namespace
from tests.unit.broker import cases


def test_random_names_against_the_real_namespace_util() -> None:
    answers = cases("namespaces")
    assert len(answers) == 4000
    for answer in answers:
        assert wrap_namespace(answer["namespace"], answer["resource"]) == answer["wrap_namespace"], answer
        assert namespace_of(answer["resource"]) == answer["namespace_of"], answer


@pytest.mark.parametrize(
    ("groups", "is_system"),
    [
        ("CID_RMQ_SYS_ CID_RMQ_SYS_TRANS CID_ONS-HTTP-PROXY CID_ONSAPI_OWNER", True),
        ("CID_ONSAPI_PERMISSION CID_ONSAPI_PULL", True),
        ("DEFAULT_CONSUMER FILTERSRV_CONSUMER SCHEDULE_CONSUMER SELF_TEST_C_GROUP TOOLS_CONSUMER", True),
        ("__MONITOR_CONSUMER", True),
        ("CID_ONS CID_ONSALE CID_SYS_RMQ_TRANS cg_TOOLS_CONSUMER CID_rmq_sys_a DEFAULT_PRODUCER", False),
    ],
)
def test_rocketmqs_own_groups_are_those_of_the_real_mix_all(groups: str, is_system: bool) -> None:
    assert {group: is_system_group(group) for group in groups.split()} == dict.fromkeys(groups.split(), is_system)
