import fnmatch

import pytest

from llmhost.config.unit_pattern import service_name, service_pattern


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("vllm", "vllm.service"),
        ("vllm.service", "vllm.service"),
        ("vllm-*", "vllm-*.service"),
        ("*", "*.service"),
        ("vllm@?.service", "vllm@?.service"),
        ("[!ab]-[0-9]", "[!ab]-[0-9].service"),
        ("llama-3.1-8b", "llama-3.1-8b.service"),
        ("llama-3.*.service", "llama-3.*.service"),
        (r"dev-\x2dsda", r"dev-\x2dsda.service"),
    ],
)
def test_a_pattern_ends_in_service(text: str, pattern: str) -> None:
    assert service_pattern(text) == pattern


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a unit name cannot be empty"),
        (".service", "a unit name cannot be empty"),
        ("vllm.timer", 'only services can be watched; did you mean "vllm.service"?'),
        ("vllm-*.slice", 'only services can be watched; did you mean "vllm-*.service"?'),
        ("vllm.*", 'say which type of unit: a pattern ends in ".service"'),
        ("vllm.servic?", 'say which type of unit: a pattern ends in ".service"'),
        ("vllm[ab", 'a bad glob: "[" opens a set such as "[ab]" or "[!ab]" of characters of a unit name'),
        ("vllm]", 'a bad glob: "[" opens a set such as "[ab]" or "[!ab]" of characters of a unit name'),
        ("vllm[]", 'a bad glob: "[" opens a set such as "[ab]" or "[!ab]" of characters of a unit name'),
        ("a[b[c]d]", 'a bad glob: "[" opens a set such as "[ab]" or "[!ab]" of characters of a unit name'),
        ("vllm-[^a]", 'a bad glob: "[" opens a set such as "[ab]" or "[!ab]" of characters of a unit name'),
        ("a b", 'a unit name cannot have the character " "; globs are *, ?, [ab] and [!ab]'),
        ("a/b", 'a unit name cannot have the character "/"; globs are *, ?, [ab] and [!ab]'),
        ("{a,b}", 'a unit name cannot have the character "{"; globs are *, ?, [ab] and [!ab]'),
        ("a!", 'a unit name cannot have the character "!"; globs are *, ?, [ab] and [!ab]'),
        ("a\n", r"a unit name cannot have the character '\n'; globs are *, ?, [ab] and [!ab]"),
        ("é", 'a unit name cannot have the character "é"; globs are *, ?, [ab] and [!ab]'),
        ("a" * 248, "a unit name has at most 255 characters"),
    ],
)
def test_a_bad_pattern_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"unit|glob|set|service") as caught:
        service_pattern(text)
    assert str(caught.value) == said


def test_a_name_of_255_characters_is_the_longest() -> None:
    assert len(service_pattern("a" * 247)) == 255


def test_a_set_means_what_fnmatch_makes_of_it() -> None:
    pattern = service_pattern("vllm-[!ab]")
    assert fnmatch.fnmatchcase("vllm-c.service", pattern)
    assert not fnmatch.fnmatchcase("vllm-a.service", pattern)


def test_a_name_has_no_globs() -> None:
    assert service_name("vllm@a") == "vllm@a.service"
    assert service_name(r"vllm-\x2d.service") == r"vllm-\x2d.service"
    with pytest.raises(ValueError, match=r'^a unit name cannot have the character "\*"$'):
        service_name("vllm*")
    with pytest.raises(ValueError, match=r'^only services can be watched; did you mean "vllm.service"\?$'):
        service_name("vllm.socket")
    with pytest.raises(ValueError, match=r"^a unit name cannot be empty$"):
        service_name("")
