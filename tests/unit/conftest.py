import gc

gc.set_threshold(200_000, 20, 50)
"""The known answers are millions of objects that stay: looking through them again and again took half the time."""
