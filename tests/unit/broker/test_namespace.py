from filtering.subscriptions.namespace import wrap_namespace
from tests.unit.broker import cases


def test_random_names_against_the_real_namespace_util() -> None:
    answers = cases("namespaces")
    assert len(answers) == 4000
    for answer in answers:
        assert wrap_namespace(answer["namespace"], answer["resource"]) == answer["wrap_namespace"], answer
