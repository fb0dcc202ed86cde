#!/bin/sh
# An executor's program in a pod that a driver made: its place is in the variables that Spark's scheduler for Kubernetes
# gives to the pod, SPARK_JAVA_OPT_0 and so on are options of its Java.
set -eu
options=$(mktemp)
env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p' >"$options"
exec java -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" "@$options" -cp "$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
