"""How the tests start a JVM. Each lives for seconds, in which the optimising compiler takes more
processor time than it saves."""

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SPARK_OPTIONS = dict.fromkeys(
    ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"), QUICK_START
)
"""Environment variables; executors on a cluster have `spark.executor.extraJavaOptions`."""
