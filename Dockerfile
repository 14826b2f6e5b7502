# The image of Airflow: every part of it (api-server, scheduler, dag-processor, triggerer) is a command of this image,
# as `docker run spark-bert/airflow airflow scheduler`. scripts/images.sh builds it.

# A Debian with Python 3.11; a release names it by its digest.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates python3.11 python3-distutils \
    && rm -rf /var/lib/apt/lists/*
# Containers run as the owner of the folders that they write to. Java, and so Spark, needs a name for that number.
RUN seq 1000 65533 | sed 's|.*|user&:x:&:&::/tmp:/usr/sbin/nologin|' >>/etc/passwd
# Folders are mounted under the path that they have on the host: a cache below root's home must be reachable too.
RUN chmod 711 /root

# uv installs exactly what the lock file lists, by hash.
FROM python AS packages
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3.11-venv \
    && python3.11 -m venv /opt/uv && python3.11 -m venv --without-pip /opt/venv
WORKDIR /build
COPY requirements/uv.lock requirements/
RUN /opt/uv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps -r requirements/uv.lock
COPY requirements/airflow.lock requirements/
RUN UV_SYSTEM_CERTS=1 UV_HTTP_TIMEOUT=120 /opt/uv/bin/uv pip install --python /opt/venv --no-cache --compile-bytecode \
        --require-hashes --no-deps --no-build -r requirements/airflow.lock

FROM python AS airflow
# AIRFLOW_HOME is 1000's, and so is a new volume that is mounted there.
RUN install --directory --owner 1000 --group 1000 /var/lib/airflow
COPY --from=packages /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/opt/spark-bert:/opt/spark-bert/plugins PYTHONUNBUFFERED=1 \
    HOME=/var/lib/airflow AIRFLOW_HOME=/var/lib/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/spark-bert/dags AIRFLOW__CORE__PLUGINS_FOLDER=/opt/spark-bert/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False AIRFLOW__CORE__EXECUTOR=LocalExecutor \
    AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION=False \
    PYTHONWARNINGS=ignore:GitWildMatchPattern:DeprecationWarning
WORKDIR /opt/spark-bert
USER 1000:1000
CMD ["airflow", "standalone"]

# The code comes last, so that a change of it rebuilds in seconds.
COPY include include
COPY plugins plugins
COPY dags dags
ARG REVISION=unknown
ENV SPARK_BERT_REVISION=$REVISION
LABEL org.opencontainers.image.title="Spark-BERT: Airflow" org.opencontainers.image.revision=$REVISION
