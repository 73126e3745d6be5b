"""The corpus check: problems and their places are found, clean corpora have no findings."""

import json
import random
import unicodedata
from pathlib import Path
from types import MappingProxyType

import pytest
from cpu_time import cpu_time

from polyhead.data.columns import Record
from polyhead.data.doctor.checks import check_files, check_pairs
from polyhead.data.doctor.findings import CheckedPairs, FindingExample
from polyhead.data.parallel import BadLine, PairFile, PairReader, Pairs, read_parallel

NOUNS = dict(zip(("학교", "시장", "공원", "친구", "영화", "음악", "바다", "사과", "책상", "편지"),
                 ("school", "market", "park", "friend", "movie", "music", "sea", "apple", "desk",
                  "letter"), strict=True))  # fmt: skip


def corpus(n, seed=0):
    """Lists of nouns and numbers in Korean and English."""
    rng = random.Random(seed)
    sources, targets = [], []
    while len(sources) < n:
        nouns = rng.choices(list(NOUNS), k=rng.randint(3, 12))
        number, end = rng.randint(1, 99_999), rng.choice(".?")
        sources.append(f"{' '.join(nouns)} {number}{end}")
        targets.append(f"{number} {' '.join(NOUNS[noun] for noun in nouns)}{end}")
    return Pairs(sources, targets)


def checked(pairs):
    """Return pairs as those of a file named "pair"."""
    records = [Record(n, *pair) for n, pair in enumerate(pairs, 1)]
    records += [Record(bad.line, "", "", bad) for bad in pairs.skipped]
    return CheckedPairs(PairReader(iter([PairFile(records, ("pair", "pair"), ())]), "skip"))


def check(train, held_out=MappingProxyType({})):
    return check_pairs(checked(train), {name: checked(pairs) for name, pairs in held_out.items()})


def some(pairs, numbers):
    return Pairs([pairs.sources[n] for n in numbers], [pairs.targets[n] for n in numbers])


def the_finding(report, name):
    """Return the only finding of this name."""
    (finding,) = [finding for finding in report.findings if finding.name == name]
    return finding


def with_lines(pairs, lines):
    """Replace some of the pairs."""
    sources, targets = list(pairs.sources), list(pairs.targets)
    for index, (source, target) in lines.items():
        sources[index], targets[index] = source, target
    return Pairs(sources, targets)


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_corpus_has_no_findings(seed):
    report = check(corpus(2_000, seed), {"valid": corpus(200, seed + 100)})
    assert report.findings == ()
    assert report.worst == "ok"
    assert report.text() == "2,000 pairs: No problems found.\n"


def test_an_inserted_line_is_located(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = corpus(2_000)
    targets = [*pairs.targets[:1_234], "something else entirely", *pairs.targets[1_234:-1]]
    Path("a.ko").write_text("\n".join(pairs.sources), encoding="utf-8")
    Path("a.en").write_text("\n".join(targets), encoding="utf-8")
    report = check_files({"source": ["a.ko"], "target": ["a.en"]}, {}, "utf-8")
    finding = the_finding(report, "misaligned")
    assert (report.worst, finding.severity) == ("error", "error")
    head, _, line = finding.title.removesuffix(" on").rpartition(":")
    assert head.endswith("from about a.ko")
    assert abs(int(line) - 1_235) <= 5
    assert abs(finding.count - 766) <= 5
    assert "the target has 1 line too many" in finding.advice


def test_the_alignment_of_held_out_sets_is_checked():
    valid = corpus(500, seed=5)
    late = Pairs(valid.sources[1:], valid.targets[:-1])
    finding = the_finding(check(corpus(500), {"valid": late}), "misaligned")
    assert finding.title.endswith("valid are misaligned from about pair:1 on")


def test_unrelated_files_are_found():
    report = check(Pairs(corpus(600).sources, corpus(600, seed=1).targets))
    assert the_finding(report, "unrelated").severity == "error"
    assert the_finding(report, "unrelated").count == 600


def test_repeated_and_untranslated_pairs_are_counted():
    pairs = corpus(200)
    same = {10: tuple(pairs)[3], 11: tuple(pairs)[3], 20: ("Tom 7", "Tom 7")}
    report = check(with_lines(pairs, same))
    assert the_finding(report, "repeated").count == 2
    assert [e.where for e in the_finding(report, "repeated").examples] == ["pair:11", "pair:12"]
    assert the_finding(report, "untranslated").count == 1
    assert the_finding(report, "untranslated").severity == "note"
    assert the_finding(report, "untranslated").examples == (
        FindingExample("pair:21", "Tom 7 | Tom 7"),
    )


def test_pairs_that_share_a_side_are_counted_apart_from_repetitions():
    pairs = corpus(1_000)
    same_target = pairs.sources[5], pairs.targets[7]
    report = check(with_lines(pairs, {4: same_target, 20: list(pairs)[30]}))
    finding = the_finding(report, "sharing")
    assert (finding.severity, finding.count) == ("note", 3)
    assert [example.where for example in finding.examples] == ["pair:5", "pair:6", "pair:8"]


def test_unusual_ratios_of_lengths_are_found_in_both_directions():
    pairs = corpus(300)
    report = check(with_lines(pairs, {
        40: ("학교", " ".join(["school"] * 30)),
        50: (" ".join(["학교 시장"] * 20), "a school"),
    }))  # fmt: skip
    assert [e.where for e in the_finding(report, "lengths").examples] == ["pair:41", "pair:51"]
    assert the_finding(report, "lengths").count == 2


def test_short_sentences_may_differ_in_length():
    short = {5: ("네!", "Yes, of course!"), 6: ("아뇨.", "No."), 7: ("아", "Oh dear.")}
    report = check(with_lines(corpus(300), short))
    assert "lengths" not in [finding.name for finding in report.findings]


def test_overlong_lines_are_found():
    report = check(with_lines(corpus(100), {9: ("학교 " * 400, "school " * 400)}))
    assert the_finding(report, "overlong").examples[0].where == "pair:10"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("control", "학교\x0b 시장"),
        ("control", "학교\u2028시장"),
        ("control", "\ufeff학교 시장"),
        ("control", "학교\r시장"),
        ("replacement", "학\ufffd 시장"),
        ("mojibake", "학교 시장".encode().decode("latin-1")),
        ("mojibake", "schöne Größe".encode().decode("cp1252")),
        ("mojibake", "it’s “here”".encode().decode("cp1252", "replace").replace("\ufffd", "")),
        ("mojibake", "안녕하세요".encode("cp949").decode("latin-1")),
        ("decomposed", unicodedata.normalize("NFD", "학교 시장")),
    ],
)
def test_odd_characters_are_found(name, line):
    finding = the_finding(check(with_lines(corpus(100), {49: (line, "school market")})), name)
    assert (finding.count, finding.examples[0].where) == (1, "pair:50")


@pytest.mark.parametrize(
    "line",
    ["déjà vu, à l’été « là »", "Größe, Übermaß, Äpfel", "CAFÉ\xa0», Où ?", "İstanbul’da ığşç",
     "naïve façade… “quoted” — done", "Ελληνικά και Русский", "Ñandú y español", "10 £ ± ½ ©",
     "éèêë", "ÄÖÜß"],
)  # fmt: skip
def test_ordinary_letters_are_not_taken_for_mojibake(line):
    names = {f.name for f in check(with_lines(corpus(100), {3: (line, line + " x")})).findings}
    assert not names & {"mojibake", "control", "replacement"}


def test_wrong_scripts_and_swapped_sides_are_distinguished():
    pairs = corpus(400)
    swapped = {n: (pairs.targets[n], pairs.sources[n]) for n in range(10)}
    report = check(with_lines(pairs, swapped | {
        20: ("this was never translated", "this was never translated, no"),
        21: ("학교에 가요", "학교에 갑니다"),
        22: ("12:30", "half past twelve"),
        23: ("Python은 언어", "Python is a language like 한국어"),
    }))  # fmt: skip
    assert the_finding(report, "script-swapped").count == 10
    assert "(Latin to Hangul)" in the_finding(report, "script-swapped").title
    assert [e.where for e in the_finding(report, "script-source").examples] == ["pair:21"]
    assert [e.where for e in the_finding(report, "script-target").examples] == ["pair:22"]


def test_two_languages_of_one_script_are_not_confused():
    sources = [f"Ein Satz über {n} Äpfel, schön." for n in range(200)]
    targets = [f"A sentence about {n} apples, nice." for n in range(200)]
    sources[7] = "Это не немецкий"
    report = check(Pairs(sources, targets))
    assert [finding.name for finding in report.findings] == ["script-source"]


def test_skipped_lines_are_counted_by_reason():
    pairs = corpus(100)
    skipped = (BadLine("a.ko", 3, "not UTF-8 (byte 0xE9 at column 2)"),
               BadLine("a.ko", 4, "not UTF-8 (byte 0xFC at column 9); it looks like CP949"),
               BadLine("a.en", 9, "the target is empty"))  # fmt: skip
    report = check(Pairs(pairs.sources, pairs.targets, skipped=skipped))
    assert {(f.title, f.count) for f in report.findings} == {
        ("skipped lines: not UTF-8", 2),
        ("skipped lines: the target is empty", 1),
    }
    assert [e.where for e in report.findings[0].examples] == ["a.ko:3", "a.ko:4"]


def test_overlap_with_held_out_sets_ignores_case_and_spaces():
    train, valid = corpus(300), corpus(50, seed=7)
    source, target = next(iter(train))
    valid = with_lines(valid, {
        4: (f" {source.replace(' ', '  ')} ", target.upper()),
        5: (unicodedata.normalize("NFD", train.sources[1]), "quite another 5."),
        6: ("아주 다른 문장 6.", train.targets[2]),
    })  # fmt: skip
    report = check(train, {"valid": valid, "test": corpus(50, seed=8)})
    for kind, place in (("pair", "pair:5"), ("source", "pair:6"), ("target", "pair:7")):
        finding = the_finding(report, f"overlap-{kind}")
        assert (finding.count, finding.examples[0].where) == (1, place)
        assert finding.title.endswith("of valid that are also in the training text")


def test_a_test_set_that_was_trained_on_is_an_error():
    pairs = corpus(300)
    report = check(pairs, {"test": some(pairs, range(0, 300, 10))})
    assert (report.worst, the_finding(report, "overlap-pair").count) == ("error", 30)


def test_the_report_has_no_control_characters_and_valid_json():
    report = check(with_lines(corpus(100), {1: ("\x1b[2J\x07학교 시장", "school\r market")}))
    assert all(c.isprintable() or c == "\n" for c in report.text())
    assert "note: " in report.text() or "warning: " in report.text()
    assert "\\x1b[2J\\x07학교 시장 | school\\r market" in report.text()
    read = json.loads(report.to_json())
    assert (read["pairs"], read["worst"]) == (100, report.worst)
    assert [f["name"] for f in read["findings"]] == [f.name for f in report.findings]
    assert read["findings"][0]["examples"][0].keys() == {"where", "text"}


def test_the_worst_finding_comes_first():
    pairs = corpus(300)
    report = check(with_lines(pairs, {0: ("Tom 7", "Tom 7")}), {"test": some(pairs, range(50))})
    severities = [finding.severity for finding in report.findings]
    assert severities == sorted(severities, key=("error", "warning", "note").index)
    assert len(set(severities)) > 1
    assert report.text().startswith("300 pairs: 1 error, ")


def test_tiny_corpora_can_be_checked():
    for n in (1, 2, 3):
        pairs = corpus(n)
        assert check(pairs, {"valid": corpus(1, seed=9)}).worst == "ok"


def test_time_is_linear_in_the_size():
    seconds = []
    for n in (2_000, 8_000):
        pairs = corpus(n)
        tries = []
        for _ in range(3):
            with cpu_time() as used:
                check(pairs)
            tries.append(used.seconds)
        seconds.append(min(tries))
    assert seconds[1] < 10 * seconds[0], "four times the pairs"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("multi30k/val.de.gz", "multi30k/val.en.gz"),
        ("multi30k/val.cs.gz", "multi30k/val.fr.gz"),
        ("tatoeba/ko-en.train.ko.gz", "tatoeba/ko-en.train.en.gz"),
        ("pydocs-ko/val.ko.gz", "pydocs-ko/val.en.gz"),
    ],
)
def test_real_corpora_are_aligned_until_a_line_is_lost(source, target, real_data):
    pairs = read_parallel([real_data / source], [real_data / target])
    assert check(pairs).worst in ("ok", "note")
    place = len(pairs) // 3
    lost = Pairs(pairs.sources[:-1], pairs.targets[:place] + pairs.targets[place + 1 :])
    (finding,) = [f for f in check(lost).findings if f.name == "misaligned"]
    assert abs(finding.count - (len(pairs) - 1 - place)) <= 10
