"""Files that commands write: a directory is made where it is missing, and an error names the file."""

from __future__ import annotations

import pathlib


def write(path: pathlib.Path, text: str) -> None:
    """Writes `text` as UTF-8. Raises OSError with the path and the reason."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        file = next((folder for folder in path.parents if folder.is_file()), None)
        reason = f"{file} is a file, and a directory is needed" if file else error.strerror or error
        raise OSError(f"cannot write {path}: {reason}") from error
