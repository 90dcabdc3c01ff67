"""Structured logs of roles, to stderr: lines for people, or JSON."""

from __future__ import annotations

import logging
import sys

import structlog

from headrace.settings import LogsSettings


def configure(settings: LogsSettings, *, role: str, level: str | None = None) -> None:
    """Send everything that this process logs, also through ``logging``, to stderr in one form."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(
            fmt="iso" if settings.format == "json" else "%H:%M:%S", utc=settings.format == "json"
        ),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0, pad_level=False)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("headrace").setLevel((level or settings.level).upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(role=role)


def get(name: str) -> structlog.stdlib.BoundLogger:
    """A logger below ``headrace``."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(f"headrace.{name}")
    return logger
