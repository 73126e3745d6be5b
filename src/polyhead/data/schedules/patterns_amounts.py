"""Sentence patterns about amounts: money, counted things, sizes, weights, rates and sums.

A line of Korean, then the same in English; see `schedules_patterns` for the slots.
"""

AMOUNTS = """
이 {thing|은} {price|이에요}.
This {thing} is {price}.

{person} 씨는 {past} {shop}에서 {goods|을} 샀어요.
{person} bought {goods} {shop.at} {past}.

{goods|과} {goods2|을} 주세요.
Please give me {goods} and {goods2}.

{goods|과} {goods2|은} 모두 {bill}입니다.
{goods} and {goods2} cost {bill} in total.

{goods|은} 얼마예요?
How much {goods.be} {goods}?

{person|은} {machine|을} {amount} 원에 팔았습니다.
{person} sold the {machine} for {amount} won.

이 {thing|은} 저 {thing}보다 {price} 더 비싸요.
This {thing} is {price} more expensive than that one.

이 {machine|은} 저 {machine}보다 {amount} 원 더 싸요.
This {machine} is {amount} won cheaper than that one.

{thing} 가격이 {percent} 올랐습니다.
The price of {thing.s} went up by {percent}.

{shop}에서 {future} {thing|을} {percent} 할인해서 팔 거예요.
{shop} will sell {thing.s} at {percent} off {future}.

{group|이} {venue}에서 기다리고 있어요.
{group} {group.be} waiting {venue.at}.

{person} 씨는 {pets|을} 키워요.
{person} has {pets}.

{person} 씨의 비밀번호를 {code|으로} 바꿔 주세요.
Please change {person}'s password to {code}.

{role} 수가 {rise.low}명에서 {rise.high}명으로 늘었습니다.
The number of {role} increased from {rise.low} to {rise.high}.

{role}의 {percent|이} {session}에 참석했습니다.
{percent} of the {role} attended the {session}.

{person} 씨의 키는 {height|이에요}.
{person} is {height} tall.

{person} 씨의 가방은 무게가 {weight|이에요}.
{person}'s bag weighs {weight}.

우리는 {event}에 쓸 {gear|이} 필요합니다.
We need {gear} for the {event}.

{shop}에서 {thing|을} 얼마에 샀어요?
How much did you pay for the {thing} {shop.at}?

{person} 씨가 낼 금액은 {won}입니다.
The amount {person} has to pay is {won}.

{person} 씨는 {goods|을} 사고 {bill|을} 냈어요.
{person} bought {goods} and paid {bill}.

{person} 씨는 {goods|을} 주문했지만 아직 받지 못했어요.
{person} ordered {goods} but has not received {goods.it} yet.

{city}에 있는 호텔은 하룻밤에 {rate} 원이에요.
The hotel in {city} is {rate} won per night.

{sum.a|과} {sum.b|을} 더하면 {sum.total|이에요}.
{sum.a} plus {sum.b} is {sum.total}.

오늘은 {fulldate|이에요}.
Today is {fulldate}.

어제는 {weekdate|이었어요}.
Yesterday was {weekdate}.

저는 {thing|이나} {thing2|을} 사고 싶어요.
I want to buy {thing.a} or {thing2.a}.

{person} 씨의 비행기는 {fulldate} {clock}에 출발합니다.
{person}'s flight leaves at {clock} on {fulldate}.

이 {thing|은} 그다지 {trait}지 않아요.
This {thing} is not very {trait}.

{person} 씨는 돈이 없어서 {machine|을} 살 수 없었어요.
{person} could not buy {machine.a} because {person.he} had no money.

{person} 씨는 {amount} 원을 모으면 {machine|을} 살 거예요.
If {person} saves {amount} won, {person.he} will buy {machine.a}.

저는 {price|으로} 살 수 있는 {charm.done} {thing|을} 찾고 있어요.
I am looking for {charm.a} {thing} that I can buy for {price}.
"""
