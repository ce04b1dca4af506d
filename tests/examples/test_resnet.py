"""A ResNet of torchvision, on made images and on a folder of pictures."""

import re
from pathlib import Path

import pytest
from training import together, whole

import ddpjob_trainer.examples

PROGRAM = str(Path(ddpjob_trainer.examples.__file__).parent / "resnet.py")
SMALL = ("--image-size", "64", "--batch-size", "8")

pytestmark = pytest.mark.timeout(600)


def test_made_images_are_learned_by_two_processes_that_go_on_where_they_were(tmp_path: Path) -> None:
    program = [PROGRAM, "--synthetic", "128", *SMALL, "--total-epochs"]
    variables = {"DDPJOB_CHECKPOINT_PATH": str(tmp_path / "uid")}
    whole(2, *program, "1", variables=variables)
    training = whole(2, *program, "5", variables=variables)
    assert "resumed in epoch 2 after step 8" in training.output
    assert training.world_sizes == {0: 2, 1: 2}
    assert training.digest
    accuracies = re.findall(r"^Accuracy (\d\.\d+) on 64 held-out images$", training.output, re.MULTILINE)
    assert [float(accuracy) > 0.9 for accuracy in accuracies] == [True], training.output


@pytest.mark.full
def test_a_folder_of_pictures_is_trained_on(tmp_path: Path) -> None:
    # Here and not above: they take each of pytest's processes seconds.
    from torchvision.utils import save_image  # noqa: PLC0415

    from ddpjob_trainer.examples import resnet  # noqa: PLC0415

    for part, images in (("train", resnet.Stripes(32, 80, 0)), ("val", resnet.Stripes(16, 80, 1))):
        for index in range(len(images)):
            pixels, label = images[index]
            (tmp_path / part / f"class-{label}").mkdir(parents=True, exist_ok=True)
            save_image(pixels, tmp_path / part / f"class-{label}" / f"{index}.png", normalize=True)
    program = (PROGRAM, "--data", str(tmp_path), *SMALL, "--total-epochs", "2", "--data-workers", "1")
    training = whole(2, *program)
    assert f"Dataset {tmp_path} | 32 to train on, 16 held out" in training.output
    assert training.digest
    assert re.search(r"^Accuracy \d\.\d+ on 16 held-out images$", training.output, re.MULTILINE)
    (tmp_path / "val" / "class-0").rename(tmp_path / "val" / "other")
    refused = together(1, *program)
    assert refused.code == 1
    assert "train/ and val/ have different classes" in refused.output


def test_a_folder_that_is_not_there_is_named_with_what_it_needs(tmp_path: Path) -> None:
    training = together(1, PROGRAM, "--data", str(tmp_path / "nowhere"))
    assert training.code == 1
    assert f"--data {tmp_path}/nowhere: " in training.output
    assert "It needs train/<class>/ and val/<class>/ with images" in training.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of the arguments --data --synthetic is required"),
        (("--data", "x", "--synthetic", "8"), "not allowed with"),
        (("--synthetic", "8", "--image-size", "32"), "--image-size must be at least 64"),
    ],
)
def test_a_wrong_command_line_is_explained_in_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    training = together(1, PROGRAM, *arguments)
    assert training.code == 2
    assert said in training.output
