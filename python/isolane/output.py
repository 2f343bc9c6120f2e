"""Files that commands write: a folder is made where it is missing, and an error names the file."""

from __future__ import annotations

import pathlib


def write(path: pathlib.Path, text: str) -> None:
    """Writes `text` as UTF-8. Raises OSError with the path and the reason."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
