"""What clients and server agree on beforehand. Public, and the same for everybody."""

from typing import Any

PROTOCOL: dict[str, Any] = {"dim": 5, "bound": 1.0, "epsilon": 4.0, "delta": 1e-7}
