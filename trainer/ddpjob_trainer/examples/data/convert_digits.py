"""Turns scikit-learn's digits.csv.gz into digits.safetensors; needed only to recreate that file."""

import argparse
import gzip
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

SIDE = 8


def convert(source: Path, target: Path) -> None:
    """Write the images and labels of the source.

    Args:
        source: gzipped lines of 64 pixels from 0 to 16 and a label from 0 to 9, separated by commas.
        target: the safetensors file to write.
    """
    with gzip.open(source, "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",").astype(np.uint8)
    images, labels = table[:, :-1].reshape(-1, SIDE, SIDE), table[:, -1]
    save_file({"images": np.ascontiguousarray(images), "labels": np.ascontiguousarray(labels)}, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    convert(arguments.source, arguments.target)
