"""Sentence patterns about events: when they start, where they are held, who comes, what goes wrong.

A line of Korean, then the same in English; see `schedules_patterns` for the slots.
"""

EVENTS = """
{event|은} {weekdate} {time}에 시작해요.
The {event} starts at {time} on {weekdate}.

{event|은} {span.start}에 시작해서 {span.end}에 끝납니다.
The {event} starts at {span.start} and ends at {span.end}.

{weekday} {event|은} {span.start}부터 {span.end}까지예요.
{weekday.s} {event} is from {span.start} to {span.end}.

{session|은} {future} {hall}에서 열릴 거예요.
The {session} will be held {hall.at} {future}.

{past} {city}에서 {show|이} 열렸습니다.
The {show} was held in {city} {past}.

{weekday} {event|은} 몇 시에 시작해요?
What time does {weekday.s} {event} start?

{show|은} {future} 어디에서 열려요?
Where will the {show} be held {future}?

{event|이} {weekdate}에 있어요?
Is the {event} on {weekdate}?

{event|이} {weekday}에서 {weekday2|으로} 연기됐어요.
The {event} was postponed from {weekday} to {weekday2}.

{reason} 때문에 {weekday} {event|이} 취소되었습니다.
{weekday.s} {event} was canceled because of {reason}.

{storm.if} {event|은} {date|으로} 연기될 거예요.
If {storm.if}, the {event} will be postponed to {date}.

{person} 씨는 {reason} 때문에 {event}에 늦었어요.
{person} was late for the {event} because of {reason}.

{weekday} {event} 전에 {person} 씨에게 전화해 주세요.
Please call {person} before {weekday.s} {event}.

{event|이} 끝난 뒤에 {venue} 앞에서 만나요.
Let's meet in front of {venue} after the {event} ends.

{event}까지 {days} 남았어요.
There are {days} left until the {event}.

{event|을} 준비하는 데 {hours|이} 걸렸어요.
It took {hours} to prepare for the {event}.

{person} 씨는 {event|이} {weekdate}에 있다고 했어요.
{person} said that the {event} is on {weekdate}.

{person} 씨에게 {event|이} {time}에 시작한다고 전해 주세요.
Please tell {person} that the {event} starts at {time}.

{past} {event}에 아무도 오지 않았습니다.
Nobody came to the {event} {past}.

{event|은} {weekday|이} 아니라 {weekday2|이에요}.
The {event} is on {weekday2}, not on {weekday}.

{city}에서 열린 {annual}에 {crowd} 명이 모였습니다.
{crowd} people gathered at the {annual} held in {city}.

{sight} 표는 한 장에 {price|이에요}.
Tickets for the {sight} are {price} each.

{weekday} {sight} 표를 {few} 장 예매하고 싶어요.
I would like to book {few} tickets for {weekday.s} {sight}.

제{nth}회 {annual|은} {weekdate}에 시작됩니다.
The {nth} {annual} begins on {weekdate}.

저는 {future} {sight|을} 보러 {city}에 갈 거예요.
I will go to {city} to see the {sight} {future}.

{person} 씨는 {past} {person2} 씨와 함께 {sight|을} 봤어요.
{person} saw the {sight} with {person2} {past}.

{event} 시간이 {time}에서 {time2|으로} 바뀌었어요.
The time of the {event} was changed from {time} to {time2}.

{weekdate}에는 {event|이} 없습니다.
There is no {event} on {weekdate}.

{session}에 {group|이} 참석할 예정입니다.
{group} will attend the {session}.

{weekday} {session}에 초대해 주셔서 감사합니다.
Thank you for inviting me to {weekday.s} {session}.

왜 {past} {event}에 안 왔어요?
Why didn't you come to the {event} {past}?

{weekday} {event|이} 몇 시에 끝나는지 아세요?
Do you know what time {weekday.s} {event} ends?

{event|은} {day} {hours} 동안 계속되었습니다.
The {event} lasted for {hours} {day}.

{session|이} 열리는 {hall|은} {venue} {position}에 있어요.
{hall} where the {session} is held is {position} {venue}.

{session|은} {time}에 {room}호에서 있습니다.
The {session} is in Room {room} at {time}.

{person} 씨는 {weekday} {session}에 참석할 수 없어요.
{person} cannot attend {weekday.s} {session}.

{weekday|이라면} 저도 {event}에 갈 수 있어요.
If it is on {weekday}, I can go to the {event}, too.

{event}에 늦지 않으려면 {time} 전에 출발해야 해요.
You have to leave before {time} so as not to be late for the {event}.

{person|은} {person2|이} {event}에 올 것이라고 생각합니다.
{person} thinks that {person2} will come to the {event}.

{weekday} {event|은} 지난번 {event}보다 더 길 거예요.
{weekday.s} {event} will be longer than the last one.
"""
