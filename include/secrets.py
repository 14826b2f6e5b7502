"""The names of a deployment's secret files ($SPARK_BERT_SECRETS), and the stages that may read them."""

from __future__ import annotations

from include.stages import STAGES

#: The environment variable that names the folder of the files or, for Airflow on Kubernetes, the Secret. For a stage
#: it always names a folder.
VARIABLE = "SPARK_BERT_SECRETS"
#: The file with the token for the Hugging Face hub, for stages that download.
HUB = "hf_token"
#: The files with the credentials for MLflow, by the environment variables that MLflow reads.
LOGIN = {
    "MLFLOW_TRACKING_TOKEN": "mlflow_token",
    "MLFLOW_TRACKING_USERNAME": "mlflow_username",
    "MLFLOW_TRACKING_PASSWORD": "mlflow_password",
}
#: The same for the login that may move the champion's alias. Without these files, LOGIN is used for that too.
PROMOTER = {variable: name.replace("mlflow_", "mlflow_promoter_") for variable, name in LOGIN.items()}
#: The files with the login of the database from which `score` reads, by the variables that have it otherwise.
DATABASE = {"SPARK_BERT_JDBC_USER": "jdbc_user", "SPARK_BERT_JDBC_PASSWORD": "jdbc_password"}
#: The file with settings of the connection to Kafka, such as its login, for `stream`.
KAFKA = "kafka.properties"
#: The variable that names such a file where there is no folder of secret files.
KAFKA_VARIABLE = "SPARK_BERT_KAFKA_PROPERTIES"
#: The file with the address and the login of the Postgres that keeps the trials of searches, and the variable that has
#: them where there is no folder of secret files. Without both, each search has a file below the home.
SEARCHES = "search_database"
SEARCHES_VARIABLE = "SPARK_BERT_SEARCH_DATABASE"
#: The file with the login to an object store, which has a table, or through which stages and the executors of a Spark
#: cluster exchange files, by the scheme of its address, and the variable that names the file for the store's library.
STORES = {
    "s3": ("aws_credentials", "AWS_SHARED_CREDENTIALS_FILE"),
    "gs": ("google_credentials.json", "GOOGLE_APPLICATION_CREDENTIALS"),
}
#: What the names of variables begin with by which a stage that is a process may get such a login.
STORE_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
#: The variables by which a stage that is a process may get a secret, instead of a file of this name.
VARIABLES = {
    HUB: ("HF_TOKEN", "HF_TOKEN_PATH"),
    KAFKA: (KAFKA_VARIABLE,),
    SEARCHES: (SEARCHES_VARIABLE,),
    **{file: (variable,) for variable, file in (DATABASE | LOGIN).items()},
}
#: The file with the bearer token that requests to the service must have.
SERVING = "serving_token"


def of_mlflow(stage: str) -> tuple[str, ...]:
    """Return the files with a stage's credentials for MLflow, if it uses MLflow, the preferred ones first."""
    if not STAGES[stage].mlflow:
        return ()
    return (*(PROMOTER.values() if STAGES[stage].promotes else ()), *LOGIN.values())
