"""The Kubernetes runtime: a stage as a pod that reaches no more than it needs and outlives its worker."""

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
from kubernetes.client import V1Pod
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from include.stages import BadInput, ExitCode
from spark_bert.containers import gpus, image, network, prepare, wants_gpus
from spark_bert.limits import VARIABLE, limits, out_of_memory
from spark_bert.operators.base import Ending, StageOperator, generation
from spark_bert.operators.cluster import delete, notes, own
from spark_bert.operators.pod import parts
from spark_bert.operators.shutdown import keeps, outlives_worker
from spark_bert.operators.stage_log import last_words, pass_on
from spark_bert.places import deployment, run_folder
from spark_bert.retries import Interrupted, Unreachable

#: Lines of the log that are read once more after the stage's end.
_TAIL = 200
#: What the API server answers where a right is missing, and where it cannot make a pod of what it is sent.
_REFUSED = (403, 422)


class KubernetesStageOperator(StageOperator, KubernetesPodOperator):
    """Runs a stage in a pod. When the worker is lost, the next try attaches to it.

    Of a task instance there is one pod at a time. Its labels say which it is, and of which generation: a task that
    was cleared starts afresh. An annotation says which try owns the pod, and only that one deletes it. The connection
    to the cluster is KubernetesPodOperator's own (kubernetes_default).

    A pod's log is stdout and stderr in one, so the result is its last line that is a JSON object: a stage prints it
    last, and logs in no such form. That needs neither a second container nor a volume that the worker shares, and,
    unlike a termination message, has no limit of 4 KiB.
    """

    template_fields: Sequence[str] = ("command", "image", "namespace")

    ti: RuntimeTaskInstanceProtocol

    def __init__(self, *, stage: str, **kwargs: Any) -> None:
        limits(stage), keeps(), deployment()  # a mistake in them stops the Dag from loading, not a run half-way
        super().__init__(
            stage=stage,
            name=f"spark-bert-{stage}",
            image=image(stage),
            termination_grace_period=self.grace,
            automount_service_account_token=False,
            startup_timeout_seconds=900,  # an image of gigabytes is pulled
            schedule_timeout_seconds=3600,  # other stages have the node, or a cluster grows by one
            **kwargs,
        )

    @cached_property
    def pod_manager(self) -> PodManager:
        """What follows the pod, logging as the other runtimes do."""
        return _PodManager(kube_client=self.client)

    def execute(self, context: Context) -> dict[str, Any]:
        """The stage's result. It is pushed here: do_xcom_push would give the pod a second container for it."""
        result = super().execute(context)
        context["ti"].xcom_push(key="return_value", value=result)
        return result

    def run_stage(self, context: Context) -> Ending:
        """Run the command in a pod, or attach to the one that an earlier try has left at work on it."""
        with self._explained():
            self._describe(context)
            pod = self.get_or_create_pod(self.build_pod_request_obj(context), context)
            self.pod = pod  # what on_kill deletes
            try:
                self.await_pod_start(pod)
                self.await_pod_completion(pod)
                ended = self.pod_manager.await_pod_completion(pod)
                log = self._tail(ended)
            except (ApiException, HTTPError, Interrupted):
                raise  # that says nothing of the pod, which may be at work: the next try attaches to it
            except BaseException:
                self._delete()
                raise
            self._delete()
            return ending(self.stage, ended, log)

    def on_kill(self) -> None:
        """Delete the pod, which then gets the time to save. Raises Interrupted where it shall outlive this worker."""
        if self.pod is None:
            return
        if outlives_worker(self.ti):
            name = self.pod.metadata.name
            raise Interrupted(f"the worker is shut down; the pod {name} goes on, and the next try attaches to it")
        self._delete()

    def get_or_create_pod(self, pod_request_obj: V1Pod, context: Context) -> V1Pod:
        """This try's pod, after the end of those that it must not attach to and that might still write."""
        instance = (f"spark-bert.{name}={self.labels[f'spark-bert.{name}']}" for name in ("dag", "run", "task", "map"))
        namespace = pod_request_obj.metadata.namespace
        for pod in self.client.list_namespaced_pod(namespace, label_selector=",".join(instance)).items:
            if is_stale(pod, pod_request_obj):
                self.log.info("ending the pod %s, which is not at work on this", pod.metadata.name)
                self.pod_manager.delete_pod(pod)
                self._await_end(pod)
        pod = super().get_or_create_pod(pod_request_obj, context)
        if pod is not pod_request_obj:
            own(self.client, pod, self.ti.id)
        return pod

    def _delete(self) -> None:
        """Delete the pod, if it is this try's. What the stage has come to counts more than that this succeeds."""
        assert self.pod is not None
        try:
            delete(self.client, self.pod, self.ti.id, self.grace)
        except (ApiException, HTTPError, AirflowException) as error:
            self.log.warning("the pod %s is left to the Dag housekeeping: %s", self.pod.metadata.name, error)

    def _describe(self, context: Context) -> None:
        """Fill in what a pod's description needs of the run."""
        self.ti = ti = context["ti"]
        run = run_folder(ti.dag_id, ti.run_id)
        prepare(self.stage, self.experiment, run)  # else the kubelet makes the folders, and they are root's
        for name, value in parts(self.stage, self.experiment, run).items():
            setattr(self, name, value)
        self.arguments = self.command
        instance = {"dag": ti.dag_id, "run": ti.run_id, "task": ti.task_id, "map": str(ti.map_index)}
        self.annotations = notes(instance, ti.id)
        labels = {
            **instance, "stage": self.stage, "deployment": deployment(), "generation": generation(context),
            "network": "none" if network(self.stage, self.experiment) == "none" else "open",
        }  # fmt: skip
        self.labels = {f"spark-bert.{name}": make_safe_label_value(value) for name, value in labels.items()}

    def _await_end(self, pod: V1Pod) -> None:
        deadline = time.monotonic() + 2 * self.grace
        try:
            while time.monotonic() < deadline:
                self.pod_manager.read_pod(pod)
                time.sleep(1)
        except ApiException as error:
            if error.status == 404:
                return
            raise
        raise AirflowException(f"the pod {pod.metadata.name} does not end, and might still write; is its node gone?")

    def _tail(self, pod: V1Pod) -> list[str]:
        """The log's last lines, whole. The stream that was followed may have broken off before them."""
        if not container_is_completed(pod, self.base_container_name):
            return []  # the cluster ended the pod without it
        name, namespace = pod.metadata.name, pod.metadata.namespace
        answer = self.client.read_namespaced_pod_log(name, namespace, tail_lines=_TAIL, _preload_content=False)
        log: bytes = answer.data
        return log.decode("utf-8", "backslashreplace").splitlines()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the cluster says into a retry or a failure, with a message that says what to do."""
        try:
            yield
        except BadInput as error:
            raise AirflowFailException(str(error)) from None
        except PodLaunchFailedException as error:
            raise not_started(image(self.stage), str(error)) from error
        except PodLaunchTimeoutException as error:
            needs = f"{limits(self.stage).memory >> 20} MiB" + (f", {gpus()} GPUs" if wants_gpus(self.stage) else "")
            raise AirflowException(
                f"no node has started {self.stage}, another try may succeed. It needs a processor and {needs}, which "
                f"{VARIABLE} and SPARK_BERT_GPUS change. {error}"
            ) from error
        except ConfigException as error:
            raise AirflowFailException(
                f"no cluster is configured ({error}): run Airflow in one, or set KUBECONFIG or the connection "
                f"{self.kubernetes_conn_id}"
            ) from error
        except ApiException as error:
            raise refused(error) from error
        except HTTPError as error:
            raise Unreachable(f"the cluster does not answer, another try may succeed: {error}") from error


class _PodManager(PodManager):
    def _log_message(self, message: str, *_: object) -> None:
        pass_on(io.StringIO(message), self.log)


def is_stale(pod: V1Pod, wanted: V1Pod) -> bool:
    """Whether a pod of the task instance is none to attach to: it was cleared, is being ended, or does other work."""

    def work(pod: V1Pod) -> tuple[Any, ...]:
        container = pod.spec.containers[0]
        return pod.metadata.labels["spark-bert.generation"], container.image, container.args

    return pod.metadata.deletion_timestamp is not None or work(pod) != work(wanted)


def ending(stage: str, pod: V1Pod, log: list[str]) -> Ending:
    """How a pod's state and the end of its log say that the stage ended.

    Raises AirflowFailException where the memory limit ended it: another try has the same limit.
    """
    line, reason = last_words(log)
    status = get_container_status(pod, KubernetesPodOperator.BASE_CONTAINER_NAME)
    ended = status.state.terminated if status else None
    if ended and ended.reason == "OOMKilled":
        raise AirflowFailException(out_of_memory(stage))
    if pod.status.reason:  # Evicted, NodeLost, Shutdown, ...: the cluster's doing, whatever the container's code
        return Ending(ExitCode.TRANSIENT, "", f"the cluster ended its pod: {pod.status.reason}, {pod.status.message}")
    if ended is None:
        return Ending(ExitCode.TRANSIENT, "", f"its pod ended ({pod.status.phase}) without a word of its container")
    return Ending(ended.exit_code, line, reason or ended.message or "")


def not_started(image: str, message: str) -> AirflowException:
    """What to raise for a pod that cannot start: for a missing image to fail, for a bad node to try again."""
    if "Image" not in message:
        return AirflowException(f"the pod did not start, another try may succeed: {message}")
    said = " ".join(message.split())
    return AirflowFailException(
        f"no node can get the image {image}: push it to a registry that they reach, or name yours with "
        f"SPARK_BERT_IMAGES and SPARK_BERT_TAG ({said})"
    )


def refused(error: ApiException) -> AirflowException:
    """What to raise when the API server says no: for a missing right or a wrong pod to fail, else to try again."""
    try:
        said = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        said = error.reason
    if error.status in _REFUSED and "exceeded quota" not in said:
        return AirflowFailException(f"the cluster refuses the pod: {said}")
    if error.status == 404:
        return Interrupted(f"the pod was deleted while the stage ran: {said}")
    kind = Unreachable if error.status >= 500 else AirflowException
    return kind(f"the cluster failed, another try may succeed: {said}")
