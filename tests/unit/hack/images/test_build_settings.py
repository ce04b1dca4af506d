from hack.images.build_settings import pip_configuration, pip_settings


def test_the_environments_pip_settings_win_over_those_of_files() -> None:
    settings = pip_settings(
        ":env:.timeout='180'\nglobal.timeout='15'\nglobal.index-url='https://index.invalid/simple'\n"
    )
    assert settings == {"timeout": "180", "index-url": "https://index.invalid/simple"}


def test_a_build_learns_where_packages_are_and_not_where_to_put_them() -> None:
    settings = {
        "extra-index-url": "https://a.invalid https://b.invalid",
        "target": "/elsewhere",
        "cert": "/host/only.pem",
    }
    assert pip_configuration(settings, "/inside.pem") == (
        "[global]\nextra-index-url = https://a.invalid\n    https://b.invalid\ncert = /inside.pem\n"
    )
