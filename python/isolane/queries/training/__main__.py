"""`python -m isolane.queries.training QUERY [--output DIRECTORY]`: makes a query's models again. Limits: see the
package.
"""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 3 where the machine lacks what training needs."""
    parser = argparse.ArgumentParser(prog="python -m isolane.queries.training", description=__doc__)
    parser.add_argument("query", choices=["traffic", "lidar", "speech"])
    parser.add_argument("--output", type=pathlib.Path, help="directory of the models (default: the query's own)")
    options = parser.parse_args(arguments)
    try:
        module = importlib.import_module(f"isolane.queries.training.{options.query}")
    except ImportError as error:
        print(f"training {options.query} needs {error.name}: pip install jax onnx espeakng-loader", file=sys.stderr)
        return 3
    default = pathlib.Path(__file__).parent.parent / options.query / "models"
    module.main(options.output or default)
    return 0


if __name__ == "__main__":
    sys.exit(main())
