"""Run expectation suites with Great Expectations on pandas or Spark, and write its Data Docs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import great_expectations as gx
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation import Expectation

from tasks.stages.pipeline.validate.rule_result import RuleResult

# Great Expectations does not escape examples of the data in its pages, so a text could contain a script.
_RESULT_FORMAT = {"result_format": "SUMMARY", "partial_unexpected_count": 0}
_SITE = "validate"

# This logger has its own level and would log the path of a temporary folder.
logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)


def check(frames: Mapping[str, Any], suites: Mapping[str, Sequence[Expectation]], docs: Path) -> list[RuleResult]:
    """Check the frame of each split against its suite, and write Great Expectations' pages.

    Args:
        frames: Split to data frame. All frames are of pandas, or all are of Spark.
        suites: Split to expectations, as `suite.rules` creates them.
        docs: The folder of the pages. The links between them are relative.

    Returns:
        One result per expectation, in the order of the splits and suites.
    """
    context = _context(docs)
    spark = any(hasattr(frame, "sparkSession") for frame in frames.values())
    sources = context.data_sources
    source = sources.add_spark("data") if spark else sources.add_pandas("data")
    findings = []
    for split, frame in frames.items():
        batch = source.add_dataframe_asset(split).add_batch_definition_whole_dataframe(split)
        suite = context.suites.add(gx.ExpectationSuite(name=split, expectations=list(suites[split])))
        definition = context.validation_definitions.add(gx.ValidationDefinition(name=split, data=batch, suite=suite))
        outcome = definition.run(batch_parameters={"dataframe": frame}, result_format=_RESULT_FORMAT)
        findings += [_rule_result(split, result) for result in outcome.results]
    context.build_data_docs(site_names=[_SITE], build_index=False)
    shutil.rmtree(docs / "static", ignore_errors=True)  # 4 MB of fonts and images that no page uses
    return findings


def _context(docs: Path) -> AbstractDataContext:
    context = gx.get_context(mode="ephemeral")
    context.variables.analytics_enabled = False
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs.absolute())}
    site: Any = {"class_name": "SiteBuilder", "show_how_to_buttons": False, "store_backend": backend}
    context.add_data_docs_site(_SITE, site)
    return context


def _rule_result(split: str, result: ExpectationValidationResult) -> RuleResult:
    config, values = result.expectation_config, result.result
    assert config is not None and config.meta is not None and config.severity is not None  # set by suite.py
    meta = config.meta
    if "unexpected_count" in values:
        observed, rows = int(values["unexpected_count"]), int(values["element_count"])
        seen = _fill(meta["seen"], bad=observed, good=rows - observed, rows=rows)
    elif "observed_value" in values:
        observed, rows = values["observed_value"], None
        seen = _fill(meta["seen"], observed=observed)
    else:
        raise RuntimeError(f"{split}: the rule {meta['rule']} could not be evaluated: {result.exception_info}")
    severity = config.severity.value
    return RuleResult(split, meta["rule"], severity, bool(result.success), observed, rows, seen, meta["remedy"])


def _fill(text: str, **values: Any) -> str:
    """Fill in placeholders like str.format, but leave other braces, which may come from the data, unchanged."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", f"{value:,}" if isinstance(value, int) else str(value))
    return text
