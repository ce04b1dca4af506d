"""The operator's command line."""

import pytest

from ddpjob_operator.__main__ import main


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--namespace="], "argument --namespace: a name is empty"),
        (["--namespace=Team"], "argument --namespace: 'Team' is not a namespace's name"),
        (["--namespace=a,b", "--namespace", "b"], "argument --namespace: 'b' is given twice"),
        (
            ["--network-policies", "--metrics-namespace=Team"],
            "argument --metrics-namespace: 'Team' is not a namespace's",
        ),
        (["--network-policies", "--metrics-namespace="], "argument --metrics-namespace: '' is not a namespace's name"),
        (["--metrics-namespace=team"], "argument --metrics-namespace: it means nothing without --network-policies"),
    ],
)
def test_a_wrong_namespace_ends_it_before_it_begins(
    flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["ddpjob-operator", *flags])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
