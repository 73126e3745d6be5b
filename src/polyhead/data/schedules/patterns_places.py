"""Sentence patterns about places: how far they are, how to get there, what the weather is like.

A line of Korean, then the same in English; see `schedules_patterns` for the slots.
"""

PLACES = """
{city} {suite|은} {weekday}마다 문을 닫아요.
The {suite.noun} in {city} is closed every {weekday}.

{suite|은} {opening.start}부터 {opening.end}까지 문을 엽니다.
{suite} is open from {opening.start} to {opening.end}.

{suite|은} {floor}층에 있고 {suite2|은} {floor2}층에 있어요.
{suite} is on the {floor} floor, and {suite2} is on the {floor2} floor.

{town}에서 {town2}까지 {ride|으로} {duration} 걸려요.
It takes {duration} to get from {town} to {town2} by {ride}.

{town}에서 {town2}까지의 거리는 {distance|이에요}.
The distance from {town} to {town2} is {distance}.

{venue|은} 여기에서 {meters} 떨어져 있어요.
{venue} is {meters} away from here.

{town}에서 {town2|으로} 가는 {vehicle|은} {time}에 출발합니다.
The {vehicle} from {town} to {town2} leaves at {time}.

{town}행 {vehicle|은} {clock}에 도착할 예정입니다.
The {vehicle} for {town} is due to arrive at {clock}.

{city|은} {city2}보다 더 {quality.polite}.
{city} is {quality.more} than {city2}.

{city|은} {city2}만큼 {quality}지 않아요.
{city} is not as {quality} as {city2}.

{city}에서 가장 {rank} {venue|은} 어디에 있어요?
Where is the {rank} {venue.noun} in {city}?

오늘 {city}의 기온은 {degrees|이에요}.
The temperature in {city} is {degrees} today.

{weekday}에는 {city}의 기온이 {warmth}까지 올라갈 거예요.
The temperature in {city} will rise to {warmth} on {weekday}.

{city|은} {past} {weather.past}어요.
{weather.past} in {city} {past}.

{city|은} {future} {weather.will} 거예요.
{weather.will} in {city} {future}.

{venue}에 가려면 {bus}번 버스를 타세요.
To get to {venue}, take bus number {bus}.

{venue|은} {venue2} {position}에 있어요.
{venue} is {position} {venue2}.

{past} {venue} {position}에 새로운 {suite|이} 생겼어요.
A new {suite.noun} opened {position} {venue} {past}.

{minutes} 동안 걸으면 {venue|이} 보일 거예요.
If you walk for {minutes}, you will see {venue}.

{venue}까지 걸어서 {minutes|이} 걸려요.
It takes {minutes} to walk to {venue}.

{city}에 있는 이 {hall|은} {year}년에 지어졌습니다.
This {hall.noun} in {city} was built in {year}.

{hour}까지 {venue} 앞으로 오세요.
Please come to the front of {venue} by {hour}.

{venue} {position}에서 {person} 씨를 기다려 주세요.
Please wait for {person} {position} {venue}.

{person} 씨는 {length} 전에 {city|으로} 이사했어요.
{person} moved to {city} {length} ago.

{person|은} {city}에서 {length} 동안 살았습니다.
{person} lived in {city} for {length}.

{person} 씨가 {city}에 온 지 {length|이} 됐어요.
It has been {length} since {person} came to {city}.

{bus}번 버스는 {venue|을} 지나가지 않습니다.
Bus number {bus} does not go past {venue}.

{city} 동물원에는 {animals|이} 있어요.
There {animals.be} {animals} at the zoo in {city}.

{day} {city} 팀이 {city2} 팀을 {score|으로} 이겼습니다.
The {city} team beat the {city2} team {score} {day}.

{town}에 갈 때는 {ride|이} {ride2}보다 더 빨라요.
The {ride} is faster than the {ride2} when you go to {town}.
"""
