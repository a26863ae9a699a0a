from filtering.subscriptions.namespace import namespace_of, wrap_namespace
from tests.unit.broker import cases


def test_random_names_against_the_real_namespace_util() -> None:
    answers = cases("namespaces")
    assert len(answers) == 4000
    for answer in answers:
        assert wrap_namespace(answer["namespace"], answer["resource"]) == answer["wrap_namespace"], answer
        assert namespace_of(answer["resource"]) == answer["namespace_of"], answer
