import gc

# The known answers are millions of objects that stay: looking through them again and again took half the time.
gc.set_threshold(200_000, 20, 1_000)
