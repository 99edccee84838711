#!/bin/sh
# A whole environment travels with the job; the workers have only a Python of the same version at the same path, and the
# same operating system.
# Tried by hand: with Spark 4.0 on a standalone cluster of two workers of one machine. The archive takes 120 MB.
#
#     MASTER=spark://host:7077 sh archive.sh emubus-0.1.0-*.whl copy_job.py orders copies /shared/checkpoint
#
# With conda instead of venv: `conda-pack -o environment.tar.gz`, and the rest is the same.
set -eu
wheel=$1
shift
if [ ! -f environment.tar.gz ]; then
    python3 -m venv environment
    environment/bin/pip install --no-deps "$wheel"
    environment/bin/pip install 'pandas>=2.2,<3' 'pyarrow>=18' 'python-qpid-proton>=0.40,<0.41' venv-pack
    environment/bin/venv-pack --prefix environment --output environment.tar.gz
fi
# The driver runs in the environment itself; workers in what Spark unpacks in the folder of each executor.
export PYSPARK_DRIVER_PYTHON="$PWD/environment/bin/python" PYSPARK_PYTHON=./environment/bin/python
exec "${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" --master "$MASTER" \
    --archives environment.tar.gz#environment "$@"
