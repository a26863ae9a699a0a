"""Findings: subscriptions that cannot mean what was written, and filters with unwanted effects on real messages."""

from filtering.findings.finding import SEVERITIES, Finding, worst_first
from filtering.findings.on_messages import FilterOnMessages, TopicMessages, filters_on_messages
from filtering.findings.static import expression_findings, own_findings, refused_findings, static_findings

__all__ = [
    "SEVERITIES",
    "FilterOnMessages",
    "Finding",
    "TopicMessages",
    "expression_findings",
    "filters_on_messages",
    "own_findings",
    "refused_findings",
    "static_findings",
    "worst_first",
]
