import gc

from hypothesis import settings

# The known answers are millions of objects that stay: looking through them again and again took half the time.
gc.set_threshold(200_000, 20, 1_000)

# The same examples in every run: what a run finds, the next one finds. New ones: tests.unit.sql92.differential.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_sessionfinish():
    # They are no garbage at the end either: pytest and Python look for some, ten times.
    gc.freeze()
