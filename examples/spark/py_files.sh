#!/bin/sh
# The wheel travels with the job; the workers' Python has pyarrow, pandas and python-qpid-proton.
# Tried: with Spark 4.0 to 4.3 on a standalone cluster of two workers (tests/spark/acceptance/test_cluster.py).
#
#     MASTER=spark://host:7077 sh py_files.sh emubus-0.1.0-*.whl copy_job.py orders copies /shared/checkpoint
#
# SPARK_HOME, SPARK_CONF_DIR and PYSPARK_PYTHON are Spark's own variables. The wheel comes from `pip wheel --no-deps .`.
set -eu
wheel=$1
shift
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cp "$wheel" "$folder/emubus.zip" # Spark passes a file called .whl by
# A stream reader's process on the driver does not see what --py-files brings.
export PYTHONPATH="$folder/emubus.zip${PYTHONPATH:+:$PYTHONPATH}"
"${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" --master "$MASTER" --py-files "$folder/emubus.zip" "$@"
