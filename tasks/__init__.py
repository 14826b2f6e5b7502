"""What runs inside a stage's process or container. Never imports airflow."""

import os

if "SPARK_BERT_VERSIONS" in os.environ:  # on an executor, before anything that it may lack is imported
    from tasks.executors import check_versions

    check_versions()
