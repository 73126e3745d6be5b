"""Sentence patterns about people: where they go, what they do, like, can, say and are.

A line of Korean, then the same in English; see `schedules_patterns` for the slots.
"""

PEOPLE = """
{person} 씨는 {future} {city}에 갈 거예요.
{person} will go to {city} {future}.

{person|은} {past} {ride|으로} {town}에 갔습니다.
{person} went to {town} by {ride} {past}.

{person} 씨는 {past} 비행기를 타고 {abroad|으로} 떠났어요.
{person} left for {abroad} by plane {past}.

{person} 씨는 {habit} {hangout}에서 {pastime.polite}.
{person} {pastime.s} {hangout.at} {habit}.

{person} 씨는 지금 {hangout}에서 {pastime}고 있어요.
{person} is {pastime.ing} {hangout.at} now.

{person|은} {past} {hangout}에서 {pastime.past}습니다.
{person} {pastime.past} {hangout.at} {past}.

{person} 씨는 {future} {activity.will} 거예요.
{person} will {activity} {future}.

{person} 씨는 {past} {activity}지 않았어요.
{person} did not {activity} {past}.

{person} 씨, {future} {activity.will} 거예요?
{person}, are you going to {activity} {future}?

{person} 씨도 {habit} {activity.polite}?
Does {person} also {activity} {habit}?

{person} 씨와 {person2} 씨는 {future} {venue}에서 만날 거예요.
{person} and {person2} will meet {venue.at} {future}.

{person|과} {person2|은} {weekdate}에 {city}에서 결혼할 예정입니다.
{person} and {person2} are getting married in {city} on {weekdate}.

{person|은} {birthday}에 {city}에서 태어났습니다.
{person} was born in {city} on {birthday}.

{person} 씨는 {city}에 사는 {job|이에요}.
{person} is {job.a} who lives in {city}.

{person} 씨의 {family|은} {venue}에서 일해요.
{person}'s {family} works {venue.at}.

{person} 씨가 {past} {hangout}에서 만난 사람은 {person2} 씨예요.
The person {person} met {hangout.at} {past} is {person2}.

{person} 씨가 {shop}에서 산 {thing|은} {trait.past}어요.
The {thing} that {person} bought {shop.at} was {trait}.

{person} 씨는 {past} {person2} 씨에게 {thing|을} 빌려줬어요.
{person} lent the {thing} to {person2} {past}.

{person} 씨는 {person2} 씨에게 {goods|을} 선물했어요.
{person} gave {goods} to {person2} as a present.

{person|은} {past} {thing|을} {venue}에 두고 왔습니다.
{person} left the {thing} {venue.at} {past}.

{past} {venue}에서 잃어버린 {thing|을} 찾았어요?
Did you find the {thing} you lost {venue.at} {past}?

{person} 씨는 {future} {city}에 간다고 했어요.
{person} said that {person.he} would go to {city} {future}.

{person} 씨는 {past} {activity.past}다고 말했어요.
{person} said that {person.he} {activity.past} {past}.

{person} 씨는 {person2} 씨에게 {hangout}에 같이 가자고 했어요.
{person} asked {person2} to go to {hangout} with {person.him}.

{person} 씨는 {person2} 씨보다 {few} 살 많아요.
{person} is {few} years older than {person2}.

{person} 씨는 {person2} 씨보다 {few} 살 어려요.
{person} is {few} years younger than {person2}.

{person} 씨는 올해 {age} 살이에요.
{person} is {age} years old this year.

{person|은} {venue} 앞에서 {person2|을} {time}까지 기다렸습니다.
{person} waited for {person2} in front of {venue} until {time}.

제 이름은 {person|이고}, {city}에서 왔습니다.
My name is {person}, and I am from {city}.

{person} 씨는 {venue}에 없어요. {venue2}에 있어요.
{person} is not {venue.at}. {person.He} is {venue2.at}.

{storm.if} {person} 씨는 {hangout}에 가지 않을 거예요.
If {storm.if}, {person} will not go to {hangout}.

{person} 씨는 {past} {pastime.to} {hangout}에 갔어요.
{person} went to {hangout} to {pastime} {past}.

{person} 씨는 {hangout}에서 {pastime.doing} 것을 좋아해요.
{person} likes {pastime.ing} {hangout.at}.

{person} 씨, {hangout}에서 {pastime}지 마세요.
{person}, please do not {pastime} {hangout.at}.

{person} 씨, {future} 저와 함께 {city}에 갈래요?
{person}, would you like to go to {city} with me {future}?

{person} 씨는 항상 {activity}기 전에 {activity2.polite}.
{person} always {activity2.s} before {activity.ing}.

{person} 씨가 {activity.doing} 동안 {person2} 씨는 {activity2.past}어요.
{person2} {activity2.past} while {person} was {activity.ing}.

우리는 {past} {city}에서 {pastime.past}어요.
We {pastime.past} in {city} {past}.

저는 {future} {person} 씨와 {pastime.will} 거예요.
I will {pastime} with {person} {future}.

저는 {past} {person|이랑} {hangout}에 갔어요.
I went to {hangout} with {person} {past}.

저는 {city}에서 온 {person|이라고} 합니다.
I am {person} from {city}.

{person} 씨는 {skill.will} 수 있지만 {skill2.will} 수는 없어요.
{person} can {skill} but cannot {skill2}.

{person|은} {job|이} 되어 {city}에서 일하고 싶어 합니다.
{person} wants to become {job.a} and work in {city}.

{person} 씨는 {job|이} 아니라 {job2|이에요}.
{person} is {job2.a}, not {job.a}.

{job}인 {person} 씨는 {habit} {ride|으로} 출근해요.
{person}, who is {job.a}, goes to work by {ride} {habit}.

{person} 씨는 벌써 {city}에 도착했어요?
Has {person} already arrived in {city}?

{person} 씨는 아직 {venue}에 도착하지 않았어요.
{person} has not arrived {venue.at} yet.

저는 {time}에 {venue}에서 {person} 씨를 만나기로 했어요.
I agreed to meet {person} {venue.at} at {time}.

{person} 씨는 보통 {hour}에 {routine.polite}.
{person} usually {routine.s} at {hour}.

{person} 씨는 어제 {hour}에 {routine.past}어요.
{person} {routine.past} at {hour} yesterday.

{date|은} {person} 씨의 생일이에요.
{date} is {person}'s birthday.

{person} 씨는 {past} {thing|을} {deed.past}어요.
{person} {deed.past} the {thing} {past}.

{person} 씨, {future} {thing|을} {favor.will} 수 있어요?
{person}, can you {favor} the {thing} {future}?

{person|은} {day} {duration} 동안 {activity.past}습니다.
{person} {activity.past} for {duration} {day}.

{person} 씨의 {family|은} {job|이} 되었어요.
{person}'s {family} became {job.a}.

{person} 씨는 {habit} {activity.plain}고 해요.
{person} says that {person.he} {activity.s} {habit}.

{person|은} {family|과} 함께 {habit} {pastime.formal}.
{person} {pastime.s} with {person.his} {family} {habit}.

{future} {thing|을} {favor.please}.
Please {favor} the {thing} {future}.
"""
