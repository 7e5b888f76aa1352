"""Which images a model is shown, and what is said of the others."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.tools.files.exchange import HEAD_BYTES, IMAGE_MAX_BYTES, SHOWN, fault_of, kind_of
from tests.support.images import gif, jpeg, png, webp

MAKE: dict[str, Callable[[int, int], bytes]] = {
    "image/png": png,
    "image/jpeg": jpeg,
    "image/gif": gif,
    "image/webp": webp,
    "image/webp lossless": lambda width, height: webp(width, height, form=b"VP8L"),
    "image/webp lossy": lambda width, height: webp(width, height, form=b"VP8 "),
}


def fault(content: bytes) -> str:
    return fault_of(kind_of(content[:HEAD_BYTES]), len(content), content)


@pytest.mark.parametrize("made", MAKE)
def test_sides_are_read_and_bounded(made: str) -> None:
    assert kind_of(MAKE[made](1, 1)[:HEAD_BYTES]) == made.split(" ")[0]
    for sides in ((1, 1), (8_000, 3), (3, 8_000)):
        assert fault(MAKE[made](*sides)) == ""
    for sides in ((8_001, 2), (2, 8_001), (12_000, 9_000)):
        said = f"it has {sides[0]:,} × {sides[1]:,} pixels, and a side may have 8,000"
        assert fault(MAKE[made](*sides)).startswith(said)


@pytest.mark.parametrize("made", MAKE)
def test_one_that_ends_before_its_end_is_damaged(made: str) -> None:
    whole = MAKE[made](300, 200)
    for length in {HEAD_BYTES, len(whole) // 2, len(whole) - 5, len(whole) - 1}:
        cut = whole[:length]
        if length < len(whole):
            assert fault(cut).startswith("it is damaged"), length


def test_a_size_that_stands_before_the_header_is_none() -> None:
    png = MAKE["image/png"](9_000, 9_000)
    text = b"\0\0\0\x10tEXt" + b"\0\0\0\x05" * 5
    assert fault(png[:8] + text + png[8:]).startswith("it is damaged")


def test_the_end_of_a_thumbnail_is_not_that_of_the_picture() -> None:
    whole = jpeg(300, 200, thumbnail=jpeg(1, 1))
    assert fault(whole) == ""
    assert fault(whole + b"anything behind it") == ""
    assert fault(whole[:-2]).startswith("it is damaged")


def test_one_of_too_many_bytes_says_how_many_it_may_have() -> None:
    assert fault(png(padding=IMAGE_MAX_BYTES - 200)) == ""
    said = fault(png(padding=8_400_000))
    assert said.startswith("it has 8,400,0")
    assert said.endswith("and an image may have 3,932,160; make it smaller")


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"\0\0\0\x24ftypmif1\0\0\0\0", "HEIC"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "AVIF"),
        (b"II*\0\x08\0\0\0", "TIFF"),
        (b"MM\0*\0\0\0\x08", "TIFF"),
        (b"BM\x36\0\x0c\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "BMP"),
    ],
)
def test_other_kinds_are_named_with_what_to_do(head: bytes, name: str) -> None:
    said = fault(head + bytes(64))
    assert said.startswith(f"models take PNG, JPEG, GIF and WebP, and this is {name}; convert it")


@pytest.mark.parametrize("text", [b"", b"BM is short for", b"<svg>", b"GIF87", b"II. The second"])
def test_what_is_no_image_is_none(text: bytes) -> None:
    assert kind_of(text) == ""


@given(kind=st.sampled_from(SHOWN), content=st.binary(max_size=80), beginning=st.integers(0, 60))
def test_any_bytes_are_judged(kind: str, content: bytes, beginning: int) -> None:
    assert isinstance(fault_of(kind, 80, MAKE[kind](1, 1)[:beginning] + content), str)
