"""Algorithms of the papers that `docs/errata.md` names, made sound."""
