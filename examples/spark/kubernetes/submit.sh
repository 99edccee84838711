#!/bin/sh
# Submits the job of the image to a cluster. The connection string comes from a Secret; checkpoints need storage that all
# pods see, such as object storage or a shared volume.
# Not tried: written from the documentation of Spark.
#
#     kubectl create secret generic servicebus --from-literal=connection-string="$SERVICEBUS_CONNECTION_STRING"
#     kubectl create serviceaccount spark
#     kubectl create rolebinding spark --clusterrole=edit --serviceaccount=default:spark
#     MASTER=k8s://https://host:6443 IMAGE=spark-servicebus sh submit.sh orders copies s3a://bucket/checkpoint
set -eu
secret=servicebus:connection-string
exec "${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" --master "$MASTER" --deploy-mode cluster --name copy \
    --conf spark.executor.instances=2 \
    --conf spark.kubernetes.container.image="$IMAGE" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
    --conf spark.kubernetes.driver.secretKeyRef.SERVICEBUS_CONNECTION_STRING="$secret" \
    --conf spark.kubernetes.executor.secretKeyRef.SERVICEBUS_CONNECTION_STRING="$secret" \
    local:///opt/jobs/copy_job.py "$@"
