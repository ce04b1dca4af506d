"""Data sets small enough to be included; README.md in this folder names their source."""

from pathlib import Path
from typing import Final

DIGITS: Final = Path(__file__).with_name("digits.safetensors")
"""1,797 images of handwritten digits: `images` uint8 [1797, 8, 8] with values from 0 to 16, `labels` uint8 [1797]."""
