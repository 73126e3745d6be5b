"""Dates, times and amounts of the corpus "schedules", formatted by Babel for each language.

2026년 3월 4일 수요일   Wednesday, March 4, 2026        섭씨 23도   23 degrees Celsius
오후 3시 30분           3:30 PM                         3천 명      3,000 people
"""

from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from functools import partial

from babel import Locale
from babel.dates import format_date, format_skeleton, format_time
from babel.numbers import format_compact_decimal, format_currency, format_percent
from babel.units import format_unit

from polyhead.data.schedules.patterns import Attribute, Filler

ONES = ("", "한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉")
TENS = ("", "열", "스물", "서른", "마흔", "쉰", "예순")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
         "eleven", "twelve")  # fmt: skip
SUFFIXES = {"one": "st", "two": "nd", "few": "rd", "other": "th"}
MINUTES = (0, 10, 15, 20, 30, 40, 45, 50)


def amount_fillers() -> dict[str, tuple[Filler, ...]]:
    """Return the fillers of dates, times and amounts, by kind."""
    return dates() | times() | numbers() | money() | measures()


def dates() -> dict[str, tuple[Filler, ...]]:
    """Return weekdays, dates with and without a year, birthdays and years."""
    near = days_between(date(2026, 1, 1), date(2027, 12, 31), step=1)
    births = days_between(date(1961, 1, 1), date(2009, 12, 31), step=53)
    return {
        "weekday": weekdays(),
        "weekdate": tuple(weekdate(day) for day in near),
        "fulldate": tuple(
            localized(partial(format_date, day, "full"), weekday_of(day)) for day in near
        ),
        "date": tuple(localized(partial(format_skeleton, "MMMMd", day)) for day in near[:365]),
        "birthday": tuple(localized(partial(format_date, day, "long")) for day in births),
        "year": names(range(1961, 2024, 2)),
    }


def times() -> dict[str, tuple[Filler, ...]]:
    """Return times in two notations, time spans, and hours in words."""
    all_times = [time(hour, minute) for hour in range(7, 22) for minute in MINUTES]
    starts = [time(hour, minute) for hour in range(8, 17) for minute in (0, 30)]
    return {
        "time": tuple(plain(korean_time(at), english_time(at)) for at in all_times),
        "clock": tuple(
            plain(format_time(at, "aaaa h:mm", locale="ko"), english_time(at)) for at in all_times
        ),
        "span": tuple(span(start, minutes) for start in starts for minutes in (60, 90, 120, 180)),
        "opening": tuple(span(start, 60 * hours) for start in starts[:7] for hours in range(7, 11)),
        "hour": tuple(
            plain(native(n) + korean, english.format(WORDS[n]))
            for n in range(1, 13)
            for korean, english in ((" 시", "{} o'clock"), (" 시 반", "half past {}"))
        ),
    }


def numbers() -> dict[str, tuple[Filler, ...]]:
    """Return cardinal and ordinal numbers, percentages, sums and scores."""
    levels = (12, 15, 20, 24, 30, 36, 40, 45, 50, 60, 72, 80, 100, 120, 150, 200)
    rises = [(low, high) for low in levels for high in levels if low < high]
    addends = (1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 15)
    sums = [(a, b) for a in (5, 8, 10, 12, 14, 17, 20, 21, 25, 26, 30, 33) for b in addends]
    scores = [(win, loss) for win in range(1, 8) for loss in range(win)]
    return {
        "few": tuple(plain(native(n), WORDS[n]) for n in range(2, 13)),
        "age": tuple(plain(native(n), str(n)) for n in range(20, 70)),
        "nth": tuple(plain(str(n), ordinal(n)) for n in range(2, 31)),
        "floor": tuple(plain(str(n), ordinal(n)) for n in range(1, 16)),
        "room": names(floor * 100 + door for floor in range(1, 10) for door in range(1, 6)),
        "bus": names((1, 3, 5, 7, 10, 12, 16, 20, 21, 28, 30, 34, 42, 51, 60, 77, 100, 102)),
        "code": names(1_000 + 379 * n % 9_000 for n in range(60)),
        "percent": tuple(localized(partial(format_percent, n / 100)) for n in range(5, 75, 5)),
        "rise": tuple(parts({"low": low, "high": high}) for low, high in rises),
        "sum": tuple(parts({"a": a, "b": b, "total": a + b}) for a, b in sums),
        "score": tuple(plain(f"{win} 대 {loss}", f"{win} to {loss}") for win, loss in scores),
    }


def money() -> dict[str, tuple[Filler, ...]]:
    """Return prices, and large round numbers, which Korean counts in 천 and 만."""
    bills = range(10_000, 100_000, 5_000)
    prices = (*range(1_000, 10_000, 500), *bills)
    crowds = (*range(1_000, 10_000, 1_000), 10_000, 20_000, 30_000, 50_000, 100_000, 200_000)
    large = (5, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300)
    return {
        "price": tuple(plain(f"{n:,}원", f"{n:,} won") for n in prices),
        "bill": tuple(plain(f"{n:,}원", f"{n:,} won") for n in bills),
        "won": tuple(localized(partial(format_currency, n, "KRW")) for n in prices),
        "amount": tuple(compact(n * 10_000) for n in large),
        "rate": tuple(compact(n * 10_000) for n in (5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 30)),
        "crowd": tuple(compact(n) for n in crowds),
    }


def measures() -> dict[str, tuple[Filler, ...]]:
    """Return lengths, weights, temperatures and durations."""
    minutes = tuple(measure(n, "duration-minute") for n in (5, 10, 15, 20, 25, 30, 40, 45, 50))
    hours = tuple(measure(n, "duration-hour") for n in range(1, 7))
    half_past = tuple(
        plain(f"{hour.korean['']} 30분", f"{hour.english['']} and 30 minutes") for hour in hours
    )
    warmth = tuple(measure(n, "temperature-celsius") for n in range(2, 36))
    frost = tuple(plain(f"영하 {n}도", f"{n} degrees below zero") for n in range(2, 19))
    return {
        "minutes": minutes,
        "hours": hours + half_past,
        "duration": minutes + hours + half_past,
        "days": tuple(measure(n, "duration-day") for n in (*range(2, 11), 12, 14, 15, 20, 30, 50)),
        "length": (
            *(measure(n, "duration-month") for n in range(2, 12)),
            *(measure(n, "duration-year") for n in range(1, 21)),
            *(measure(n, "duration-week") for n in (2, 3)),
        ),
        "distance": tuple(measure(n, "length-kilometer") for n in range(30, 460, 10)),
        "meters": tuple(measure(n, "length-meter") for n in range(50, 950, 50)),
        "height": tuple(measure(n, "length-centimeter") for n in range(150, 191)),
        "weight": tuple(measure(n / 2, "mass-kilogram") for n in range(1, 21)),
        "warmth": warmth,
        "degrees": warmth + frost,
    }


def plain(korean: str, english: str, attributes: tuple[Attribute, ...] = ()) -> Filler:
    """Return a filler with one form in each language."""
    return Filler({"": korean}, {"": english}, attributes)


def localized(text: Callable[..., str], attributes: tuple[Attribute, ...] = ()) -> Filler:
    """Return a filler of the texts of both locales."""
    return plain(text(locale="ko"), text(locale="en"), attributes)


def parts(values: dict[str, int]) -> Filler:
    """Return a filler without plain form, whose forms are the same in both languages."""
    forms = {name: str(value) for name, value in values.items()}
    return Filler(forms, forms)


def days_between(first: date, last: date, *, step: int) -> list[date]:
    """Return every `step`-th day from the first to the last."""
    return [first + timedelta(days=n) for n in range(0, (last - first).days + 1, step)]


def weekday_of(day: date) -> tuple[Attribute, ...]:
    """Return the weekday of a day as attributes of a filler."""
    return (("weekday", format_date(day, "EEEE", locale="ko")),)


def weekdays() -> tuple[Filler, ...]:
    """Return the days of the week: 수요일, Wednesday, Wednesday's."""
    fillers = []
    for day in days_between(date(2026, 3, 2), date(2026, 3, 8), step=1):
        korean, english = (format_date(day, "EEEE", locale=language) for language in ("ko", "en"))
        fillers.append(Filler({"": korean}, {"": english, "s": f"{english}'s"}, weekday_of(day)))
    return tuple(fillers)


def weekdate(day: date) -> Filler:
    """Return a date with its weekday: 3월 4일 수요일, Wednesday, March 4."""
    korean = format_skeleton("MMMEEEEd", day, locale="ko")
    return plain(korean, format_date(day, "EEEE, MMMM d", locale="en"), weekday_of(day))


def korean_time(at: time) -> str:
    """Return the Korean time as it is spoken: 오후 3시, 오후 3시 30분."""
    return format_time(at, "aaaa h시 m분" if at.minute else "aaaa h시", locale="ko")


def english_time(at: time) -> str:
    """Return the English time: 3:30 PM."""
    return format_time(at, "h:mm a", locale="en")


def span(start: time, length: int) -> Filler:
    """Return two times, `length` minutes apart."""
    end = (datetime.combine(date(2026, 3, 2), start) + timedelta(minutes=length)).time()
    return Filler(
        {"start": korean_time(start), "end": korean_time(end)},
        {"start": english_time(start), "end": english_time(end)},
    )


def native(number: int) -> str:
    """Return the native Korean numeral before a counter, up to 69: 세, 열두, 스무, 서른한."""
    if number == 20:
        return "스무"
    return TENS[number // 10] + ONES[number % 10]


def ordinal(number: int) -> str:
    """Return the English ordinal: 1st, 22nd, 13th."""
    return f"{number}{SUFFIXES[Locale('en').ordinal_form(number)]}"


def compact(number: int) -> Filler:
    """Return a large number in units of 천 and 만, and in digits: 35만, 350,000."""
    return plain(format_compact_decimal(number, locale="ko"), f"{number:,}")


def names(values: Iterable[int]) -> tuple[Filler, ...]:
    """Return numbers used as names: equal in both languages, without commas."""
    return tuple(plain(str(value), str(value)) for value in values)


def measure(number: int | float, unit: str) -> Filler:
    """Return a number with its unit; Babel has the Korean words of durations as short forms."""
    is_duration = unit.startswith("duration")
    korean = format_unit(number, unit, "short" if is_duration else "long", locale="ko")
    return plain(korean, format_unit(number, unit, "long", locale="en"))
