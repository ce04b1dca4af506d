from pathlib import Path

from hack.lint.length import MOST_LINES, too_long


def test_a_file_of_the_product_that_is_too_long_is_named_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator/long.py").write_text("pass\n" * (MOST_LINES + 1))
    (tmp_path / "operator/enough.py").write_text("pass\n" * MOST_LINES)
    assert too_long(tmp_path) == ["operator/long.py has 401 lines; split it, at most 400 are allowed"]
