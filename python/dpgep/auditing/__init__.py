"""What a mechanism tells of two neighbouring data sets: by statistics (`audit`), by the same answers (`replay`)."""

from dpgep.auditing.replays import ReplayPart, ReplayResult, replay
from dpgep.auditing.statistical import AuditResult, audit, audit_samples

__all__ = ["AuditResult", "ReplayPart", "ReplayResult", "audit", "audit_samples", "replay"]
