"""Particles and endings against examples, and against Unicode's decomposition."""

import unicodedata

import pytest

from polyhead.data.schedules.korean import attach, conjugate, final, with_final

SYLLABLES = [chr(code) for code in range(0xAC00, 0xD7A4)]
WORDS = """
책은 지우는 | 서울은 부산은 제주는 학교는 | 값은 닭은 앞은 낮은 | 꽃이 나무가 삶이
우산을 모자를 물을 | 빵과 우유와 물과 | 집으로 학교로 서울로 부산으로 교실로 칼로 옆으로 옷으로
의사예요 선생님이에요 딸이에요
어제였어요 수요일이었어요 | 민준이고 민지고 | 사과나 귤이나 | 지훈이랑 수아랑 | 폴이라고 안나라고
월요일이라면 모레라면 | 민준아 민지야
"""
DIGITS = """
0은 1은 2는 3은 4는 5는 6은 7은 8은 9는 | 0이 1이 2가 3이 4가 5가 6이 7이 8이 9가
0으로 1로 2로 3으로 4로 5로 6으로 7로 8로 9로 | 10으로 11로 13으로 20과 22와 30을 45를 100이 101로
1000은 12,000은 10000으로 100000000이 1000000000000가 1000000000000로 10000000000000000이
3.5가 3.10이 0.1로 0.2로 | 25%가 10%로 3kg이 5km가 7m로 8kg으로 20°C가 | ₩500이 $20가 ₩1,000으로
3:30이 3:00가 | 3시가 30분이 2026년은 3월로 4일로 15층으로 | 007로 00이
"""
LATIN = """
KTX로 TV가 USB를 PDF와 IT는 CEO가 LA로 | HTML로 XML을 PR로 CNN이 BGM으로 DM으로 A는 L로
M이 N으로 R로 R이 PR을
Paul이 Google로 Apple은 Kim이 game을 Ben은 phone으로 Anne과 Jane을 King은 Facebook은 Jack이 Eric은
web을 tablet으로 Bob이 | Anna는 Mary가 Mike와 chart를 post로 Lucas는 | A4로 B1로 F16으로
"""
QUOTED = "‘서울’로 “부산”으로 (책)은 '지우'는"


FORMS_OF_PARTICLES = """
이었어요 였어요 | 이에요 예요 | 이라고 라고 | 이라면 라면 | 이랑 랑 | 이나 나 | 이고 고 | 으로 로
은 는 | 이 가 | 을 를 | 과 와 | 아 야
"""


def cases(text):
    """Split each word of the list from the particle it was written with."""
    pairs = [pair.split() for pair in FORMS_OF_PARTICLES.strip().replace("\n", "|").split("|")]
    names = {form: pair[0] for pair in pairs for form in pair}
    for expected in text.replace("|", " ").split():
        form = next(f for f in names if expected.endswith(f) and expected != f)
        yield expected, expected.removesuffix(form), names[form]


@pytest.mark.parametrize(
    ("expected", "word", "particle"), list(cases(f"{WORDS} {DIGITS} {LATIN} {QUOTED}"))
)
def test_particles_match_the_examples(expected, word, particle):
    assert attach(word, particle) == expected


def test_final_matches_the_unicode_decomposition():
    for syllable in SYLLABLES:
        jamo = unicodedata.normalize("NFD", syllable)
        if len(jamo) == 3:
            name = unicodedata.name(jamo[2]).removeprefix("HANGUL JONGSEONG ")
            assert final(f"가나{syllable}") == unicodedata.lookup(f"HANGUL LETTER {name}")
        else:
            assert final(f"각낙{syllable}") == ""
        assert final(jamo) == final(syllable), "another normal form"


def test_unreadable_text_counts_as_ending_in_a_vowel():
    assert final("") == ""
    assert attach("🙂", "은") == "🙂는"


def test_an_unknown_particle_is_an_error():
    with pytest.raises(ValueError, match="에"):
        attach("서울", "에")


@pytest.mark.parametrize("consonant", ["", "ㄴ", "ㄹ", "ㅆ"])
def test_with_final_changes_only_the_final(consonant):
    for syllable in SYLLABLES:
        changed = with_final(f"나{syllable}", consonant)
        assert final(changed) == consonant
        start, same = (unicodedata.normalize("NFD", text) for text in (f"나{syllable}", changed))
        assert start[:4] == same[:4]
        assert len(changed) == 2


FORMS = ("polite", "past", "formal", "plain", "doing", "done", "will", "if", "to", "please")


@pytest.mark.parametrize(
    ("parts", "forms"),
    [
        (("읽", "읽어"), "읽어요 읽었 읽습니다 읽는다 읽는 읽은 읽을 읽으면 읽으러 읽으세요"),
        (("가", "가"), "가요 갔 갑니다 간다 가는 간 갈 가면 가러 가세요"),
        (("마시", "마셔"), "마셔요 마셨 마십니다 마신다 마시는 마신 마실 마시면 마시러 마시세요"),
        (("하", "해"), "해요 했 합니다 한다 하는 한 할 하면 하러 하세요"),
        (("만들", "만들어"),
         "만들어요 만들었 만듭니다 만든다 만드는 만든 만들 만들면 만들러 만드세요"),
        (("듣", "들어", "들으"),
         "들어요 들었 듣습니다 듣는다 듣는 들은 들을 들으면 들으러 들으세요"),
        (("굽", "구워", "구우"),
         "구워요 구웠 굽습니다 굽는다 굽는 구운 구울 구우면 구우러 구우세요"),
        (("부르", "불러"), "불러요 불렀 부릅니다 부른다 부르는 부른 부를 부르면 부르러 부르세요"),
        (("쓰", "써"), "써요 썼 씁니다 쓴다 쓰는 쓴 쓸 쓰면 쓰러 쓰세요"),
    ],
)  # fmt: skip
def test_verbs_are_conjugated(parts, forms):
    conjugated = conjugate(*parts)
    assert [conjugated[name] for name in FORMS] == forms.split()
    assert conjugated[""] == parts[0]
    assert set(conjugated) == {"", *FORMS}
