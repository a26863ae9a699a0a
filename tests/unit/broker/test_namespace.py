from filtering.subscriptions.namespace import (
    namespace_of,
    without_namespace,
    wrap_namespace,
    wrap_namespace_and_retry,
)
from tests.unit.broker import cases


def test_random_names_against_the_real_namespace_util() -> None:
    answers = cases("namespaces")
    assert len(answers) == 4000
    for answer in answers:
        namespace, resource = answer["namespace"], answer["resource"]
        assert {
            "namespace": namespace,
            "resource": resource,
            "wrap_namespace": wrap_namespace(namespace, resource),
            "wrap_namespace_and_retry": wrap_namespace_and_retry(namespace, resource),
            "without_namespace": without_namespace(resource),
            "namespace_of": namespace_of(resource),
        } == answer
