"""In a driver's PYTHONPATH: every task goes to Spark, however little there is to do."""

from schemas import spark_tasks

spark_tasks.SPARK_FROM_BYTES = -1
spark_tasks.MOST_THREADS = 0
spark_tasks.SECONDS_OF_A_READY_SESSION = 600
