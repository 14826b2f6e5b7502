"""The secret files of a deployment ($SPARK_BERT_SECRETS): their names, and which stage may read which."""

from __future__ import annotations

from include.stages import STAGES

#: Where the files are: a folder, or on Kubernetes the name of a Secret. A stage finds the folder there.
VARIABLE = "SPARK_BERT_SECRETS"
#: The hub's token, for stages that download.
HUB = "hf_token"
#: MLflow's variables for a login, and the files that hold them.
LOGIN = {
    "MLFLOW_TRACKING_TOKEN": "mlflow_token",
    "MLFLOW_TRACKING_USERNAME": "mlflow_username",
    "MLFLOW_TRACKING_PASSWORD": "mlflow_password",
}
#: The same of the login that may move the champion's alias. Without them, the other login does it all.
PROMOTER = {variable: name.replace("mlflow_", "mlflow_promoter_") for variable, name in LOGIN.items()}


def of_mlflow(stage: str) -> tuple[str, ...]:
    """The files by which the stage logs in to MLflow, the best first; none for one that never speaks with it."""
    if not STAGES[stage].mlflow:
        return ()
    return (*(PROMOTER.values() if STAGES[stage].promotes else ()), *LOGIN.values())
