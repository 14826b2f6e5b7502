"""The runtime `kubernetes`: runs a stage in a sandboxed pod that can outlive its worker."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import PodLaunchFailedException
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.pod_generator import make_safe_label_value
from airflow.providers.cncf.kubernetes.utils.container import container_is_completed, get_container_status
from airflow.providers.cncf.kubernetes.utils.pod_manager import PodLaunchTimeoutException, PodManager
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.types import RuntimeTaskInstanceProtocol
from kubernetes.client import V1EnvVar, V1Pod
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from include.stages import ExitCode
from spark_bert.deployment.containers import gpus, image, network, prepare_folders
from spark_bert.deployment.limits import VARIABLE, limits, out_of_memory
from spark_bert.deployment.places import deployment, run_folder, run_name
from spark_bert.operators.base import Outcome, StageOperator
from spark_bert.operators.failures import Interrupted, Unreachable, generation
from spark_bert.operators.kubernetes_pods import GONE, delete, pod_annotations, pod_attributes, take_over
from spark_bert.operators.stage_log import forward_log, parse_log_tail
from spark_bert.operators.stopping import keeps_containers, outlives_worker

_TAIL = 200  # lines at the end of the log that are read again after the stage has ended
_REFUSED = (403, 422)  # HTTP statuses for a missing permission and an invalid pod, which another try would get again


class KubernetesStageOperator(StageOperator, KubernetesPodOperator):
    """Runs a stage in a pod. If the worker is lost, the next try attaches to the pod.

    A task instance has at most one pod at a time. An annotation identifies the try that owns the pod, and only this
    try deletes it. The result is the last line of the pod's log that is a JSON object: this needs no XCom sidecar, and
    has no limit of 4 KiB as a termination message has.
    """

    template_fields: Sequence[str] = ("command", "image", "namespace")

    ti: RuntimeTaskInstanceProtocol

    def __init__(self, *, stage: str, **kwargs: Any) -> None:
        limits(stage), keeps_containers(), deployment()  # so that a mistake in them keeps the Dag from loading
        super().__init__(
            stage=stage,
            name=f"spark-bert-{stage}",
            image=image(stage),
            termination_grace_period=self.grace,
            automount_service_account_token=False,
            startup_timeout_seconds=900,  # enough to pull an image of several gigabytes
            schedule_timeout_seconds=3600,  # enough for other stages to end, or for the cluster to add a node
            **kwargs,
        )

    @cached_property
    def pod_manager(self) -> PodManager:
        """The manager that follows the pod. It logs in the same format as the other runtimes."""
        return _PodManager(kube_client=self.client)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the stage, push its result as the XCom return_value, and return it."""
        result = super().execute(context)  # it pushes nothing, because do_xcom_push would add a sidecar to the pod
        context["ti"].xcom_push(key="return_value", value=result)
        return result

    def run_stage(self, context: Context) -> Outcome:
        """Run the command in a pod, or attach to the pod in which an earlier try has started it."""
        with self._translated_errors():
            self._configure_pod(context)
            pod = self.get_or_create_pod(self.build_pod_request_obj(context), context)
            self.pod = pod  # for on_kill
            try:
                self.await_pod_start(pod)
                self.await_pod_completion(pod)
                ended = self.pod_manager.await_pod_completion(pod)
                log = self._log_tail(ended)
            except (ApiException, HTTPError, Interrupted):
                raise  # the pod may still be running, so the next try attaches to it
            except BaseException:
                self._delete()
                raise
            self._delete()
            return pod_outcome(self.stage, ended, log)

    def on_kill(self) -> None:
        """Delete the pod after the stage's grace period. Raise Interrupted if the pod is to outlive this worker."""
        if self.pod is None:
            return
        if outlives_worker(self.ti):
            name = self.pod.metadata.name
            raise Interrupted(f"the worker is shut down; the pod {name} keeps running, and the next try attaches to it")
        self._delete()

    def get_or_create_pod(self, pod_request_obj: V1Pod, context: Context) -> V1Pod:
        """Return the pod for this try: one that an earlier try has left, or a new one when stale pods have ended."""
        instance = (f"spark-bert.{name}={self.labels[f'spark-bert.{name}']}" for name in ("dag", "run", "task", "map"))
        namespace = pod_request_obj.metadata.namespace
        for pod in self.client.list_namespaced_pod(namespace, label_selector=",".join(instance)).items:
            if is_stale(pod, pod_request_obj):
                self.log.info("deleting the pod %s, which does other work or is stopping", pod.metadata.name)
                self.pod_manager.delete_pod(pod)
                self._await_deletion(pod)
        pod = super().get_or_create_pod(pod_request_obj, context)
        if pod is not pod_request_obj:
            take_over(self.client, pod, self.ti.id)
        return pod

    def _delete(self) -> None:
        """Delete the pod if this try owns it. Errors are only logged, so that they do not hide the stage's outcome."""
        assert self.pod is not None
        try:
            delete(self.client, self.pod, str(self.ti.id), self.grace)
        except (ApiException, HTTPError, AirflowException) as error:
            self.log.warning(
                "the Dag housekeeping will delete the pod %s, because it could not be deleted now: %s",
                self.pod.metadata.name, error,
            )  # fmt: skip

    def _configure_pod(self, context: Context) -> None:
        self.ti = ti = context["ti"]
        run = run_folder(ti.dag_id, run_name(ti))
        prepare_folders(self.stage, self.experiment, run)  # otherwise the kubelet creates them as root
        attributes = pod_attributes(self.stage, self.experiment, run)
        attributes["env_vars"] += [V1EnvVar(*pair) for pair in self.variables.items()]
        for name, value in attributes.items():
            setattr(self, name, value)
        self.arguments = self.command
        instance = {"dag": ti.dag_id, "run": ti.run_id, "task": ti.task_id, "map": str(ti.map_index)}
        self.annotations = pod_annotations(instance, ti.id)
        labels = {
            **instance, "stage": self.stage, "deployment": deployment(), "generation": generation(context),
            "network": "none" if network(self.stage, self.experiment) == "none" else "open",
        }  # fmt: skip
        self.labels = {f"spark-bert.{name}": make_safe_label_value(value) for name, value in labels.items()}

    def _await_deletion(self, pod: V1Pod) -> None:
        deadline = time.monotonic() + 2 * self.grace
        try:
            while time.monotonic() < deadline:
                self.pod_manager.read_pod(pod)
                time.sleep(1)
        except ApiException as error:
            if error.status == GONE:
                return
            raise
        raise AirflowException(f"the pod {pod.metadata.name} does not end and might still write files: check its node")

    def _log_tail(self, pod: V1Pod) -> list[str]:
        """Read the last lines of the log. The stream of the log may have broken off before them."""
        if not container_is_completed(pod, self.base_container_name):
            return []  # the cluster has ended the pod, so there may be no log to read
        name, namespace = pod.metadata.name, pod.metadata.namespace
        answer = self.client.read_namespaced_pod_log(name, namespace, tail_lines=_TAIL, _preload_content=False)
        log: bytes = answer.data
        return log.decode("utf-8", "backslashreplace").splitlines()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except PodLaunchFailedException as error:
            raise launch_error(image(self.stage), str(error)) from error
        except PodLaunchTimeoutException as error:
            count = gpus(self.stage)
            needs = f"{limits(self.stage).memory >> 20} MiB" + (f", {count} GPUs" if count else "")
            raise AirflowException(
                f"no node has started {self.stage}, another try may succeed. It needs a processor and {needs}. "
                f"{VARIABLE} and SPARK_BERT_GPUS change that. {error}"
            ) from error
        except ConfigException as error:
            raise AirflowFailException(
                f"no cluster is configured ({error}): run Airflow in a cluster, or set KUBECONFIG or the connection "
                f"{self.kubernetes_conn_id}"
            ) from error
        except ApiException as error:
            raise api_error(error) from error
        except HTTPError as error:
            raise Unreachable(f"the cluster does not answer, another try may succeed: {error}") from error


class _PodManager(PodManager):
    def _log_message(self, message: str, *_: object) -> None:
        forward_log(io.StringIO(message), self.log)


def is_stale(pod: V1Pod, wanted: V1Pod) -> bool:
    """Return whether a pod of a task instance is being deleted, or is of another generation or work than the wanted."""

    def work(pod: V1Pod) -> tuple[Any, ...]:
        container = pod.spec.containers[0]
        return pod.metadata.labels["spark-bert.generation"], container.image, container.args

    return pod.metadata.deletion_timestamp is not None or work(pod) != work(wanted)


def pod_outcome(stage: str, pod: V1Pod, log: list[str]) -> Outcome:
    """Return how the stage ended, from its pod and the last lines of the pod's log."""
    line, reason = parse_log_tail(log)
    status = get_container_status(pod, KubernetesPodOperator.BASE_CONTAINER_NAME)
    ended = status.state.terminated if status else None
    if ended and ended.reason == "OOMKilled":  # another try would have the same limit
        raise AirflowFailException(out_of_memory(stage))
    if pod.status.reason:  # Evicted, NodeLost, Shutdown, ...: not caused by the stage
        return Outcome(ExitCode.TRANSIENT, "", f"the cluster ended its pod: {pod.status.reason}, {pod.status.message}")
    if ended is None:
        reason = f"its pod ended ({pod.status.phase}) without reporting the state of its container"
        return Outcome(ExitCode.TRANSIENT, "", reason)
    return Outcome(ended.exit_code, line, reason or ended.message or "")


def launch_error(image: str, message: str) -> AirflowException:
    """Return the exception for a pod that cannot start: a failure if the image is missing, and otherwise a retry."""
    if "Image" not in message:
        return AirflowException(f"the pod did not start, another try may succeed: {message}")
    details = " ".join(message.split())
    return AirflowFailException(
        f"no node can get the image {image}: push it to a registry that the nodes can reach, or set SPARK_BERT_IMAGES "
        f"and SPARK_BERT_TAG to an image that they can get ({details})"
    )


def api_error(error: ApiException) -> AirflowException:
    """Return the exception for an error of the API server: a failure if it refuses the pod, and otherwise a retry."""
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason
    if error.status in _REFUSED and "exceeded quota" not in message:  # an exceeded quota can pass
        return AirflowFailException(f"the cluster refuses the pod: {message}")
    if error.status == GONE:
        return Interrupted(f"the pod was deleted while the stage ran: {message}")
    kind = Unreachable if error.status >= 500 else AirflowException
    return kind(f"the cluster reported an error, another try may succeed: {message}")
