"""Training tasks; `TASKS` of `polyhead.models.registry` names them."""
