"""The bundled digits are what they are said to be."""

import gzip
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from ddpjob_trainer.examples.data import DIGITS
from ddpjob_trainer.examples.data.convert_digits import convert


def test_all_images_are_there_with_the_numbers_of_each_digit_that_the_data_set_is_known_for() -> None:
    digits = load_file(DIGITS)
    assert (digits["images"].shape, digits["images"].dtype) == ((1797, 8, 8), np.uint8)
    assert (digits["images"].min(), digits["images"].max()) == (0, 16)
    assert np.bincount(digits["labels"]).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_converting_the_images_back_and_again_gives_the_same_file(tmp_path: Path) -> None:
    digits = load_file(DIGITS)
    table = np.column_stack([digits["images"].reshape(-1, 64), digits["labels"]])
    with gzip.open(tmp_path / "digits.csv.gz", "wt", encoding="ascii") as lines:
        np.savetxt(lines, table, fmt="%.18e", delimiter=",")
    convert(tmp_path / "digits.csv.gz", tmp_path / "digits.safetensors")
    assert (tmp_path / "digits.safetensors").read_bytes() == DIGITS.read_bytes()
