"""Builds the reports that `explain` returns for an optimized model."""

from dacergnn.report.layers import layer_report
from dacergnn.report.records import BuildReport, Estimate, LayerReport, PassReport
from dacergnn.report.text import NOTHING, Report

__all__ = ["NOTHING", "BuildReport", "Estimate", "LayerReport", "PassReport", "Report", "layer_report"]
