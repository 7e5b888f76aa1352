"""Every page of the console has its pictures: in light and dark colours and on a phone."""

from console_screens import LOOKS, SCREENS, SHOWN


def test_every_place_of_the_tour_has_a_picture_in_every_look() -> None:
    wanted = {f"{place}-{look}.webp" for place in SHOWN for look in LOOKS}
    assert {path.name for path in SCREENS.iterdir()} == wanted, "run tools/console_screens.py"
