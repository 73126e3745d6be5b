"""The words of the "schedules" corpus: who, where, what and which, in Korean and English.

Each table is text, one entry after another with `;` or a new line between them, and the fields of
an entry with `|` between them; the comment above a table names its fields. Verbs and adjectives
are given by stem, 아/어 form, and where irregular the stem before 으; see `korean.conjugate`.
"""

# name | in English (Revised Romanization for Korean names) | pronoun
PEOPLE = """
민준|Minjun|he; 서준|Seojun|he; 도윤|Doyun|he; 예준|Yejun|he; 주원|Juwon|he; 지호|Jiho|he
준서|Junseo|he; 지훈|Jihun|he; 성민|Seongmin|he; 동현|Donghyeon|he; 태영|Taeyeong|he
승호|Seungho|he; 재석|Jaeseok|he; 상철|Sangcheol|he; 영수|Yeongsu|he; 한결|Hangyeol|he
기범|Gibeom|he; 준혁|Junhyeok|he; 도현|Dohyeon|he; 진석|Jinseok|he; 병철|Byeongcheol|he
서연|Seoyeon|she; 하은|Haeun|she; 민지|Minji|she; 수빈|Subin|she; 지은|Jieun|she; 예린|Yerin|she
유진|Yujin|she; 다은|Daeun|she; 채원|Chaewon|she; 수아|Sua|she; 은영|Eunyeong|she
미경|Migyeong|she; 혜진|Hyejin|she; 나은|Naeun|she; 소영|Soyeong|she; 지혜|Jihye|she
보람|Boram|she; 한별|Hanbyeol|she; 은지|Eunji|she; 윤아|Yuna|she; 미나|Mina|she; 폴|Paul|he
마이클|Michael|he; 다니엘|Daniel|he; 톰|Tom|he; 존|John|he; 데이비드|David|he; 마르코|Marco|he
루카스|Lucas|he; 벤|Ben|he; 아흐메드|Ahmed|he; 겐지|Kenji|he; 라지|Raj|he; 안나|Anna|she
에밀리|Emily|she; 소피아|Sofia|she; 마리아|Maria|she; 그레이스|Grace|she; 유키|Yuki|she
클라라|Clara|she; 줄리아|Julia|she; 헬렌|Helen|she; 프리야|Priya|she
"""

# city | in English
CITIES = """
서울|Seoul; 부산|Busan; 인천|Incheon; 대구|Daegu; 대전|Daejeon; 광주|Gwangju; 울산|Ulsan
수원|Suwon; 춘천|Chuncheon; 강릉|Gangneung; 속초|Sokcho; 전주|Jeonju; 여수|Yeosu; 목포|Mokpo
경주|Gyeongju; 포항|Pohang; 안동|Andong; 통영|Tongyeong; 군산|Gunsan; 진주|Jinju; 도쿄|Tokyo
오사카|Osaka; 베이징|Beijing; 방콕|Bangkok; 하노이|Hanoi; 파리|Paris; 런던|London; 베를린|Berlin
로마|Rome; 뉴욕|New York; 시드니|Sydney; 토론토|Toronto
"""
DOMESTIC = 20  # so many of them, from the first, are joined by land

# venue | noun | preposition | what goes there: hangout, shop, event, floor of a building
VENUES = """
도서관|library|at|h e; 박물관|museum|at|e; 미술관|art museum|at|e; 공항|airport|at|
기차역|train station|at|; 병원|hospital|at|; 은행|bank|at|f; 우체국|post office|at|f
시장|market|at|s; 공원|park|in|h e; 대학교|university|at|h e; 카페|cafe|at|h f
식당|restaurant|at|f; 극장|theater|at|e; 체육관|gym|at|e f; 수영장|swimming pool|at|f
호텔|hotel|at|e; 서점|bookstore|at|f; 약국|pharmacy|at|f; 경찰서|police station|at|
동물원|zoo|at|h; 해변|beach|on|h; 사무실|office|at|f; 회의실|meeting room|in|e f
강당|auditorium|in|e f; 주차장|parking lot|in|; 백화점|department store|at|s; 빵집|bakery|at|
꽃집|flower shop|at|f; 미용실|hair salon|at|f; 치과|dental clinic|at|f
편의점|convenience store|at|f; 버스 터미널|bus terminal|at|; 경기장|stadium|at|e
식물원|botanical garden|at|h e; 캠핑장|campsite|at|h; 유치원|kindergarten|at|; 항구|harbor|at|
성당|cathedral|at|; 호수|lake|at|h; 광장|square|in|h e; 슈퍼마켓|supermarket|at|s
놀이공원|amusement park|at|h; 영화관|movie theater|at|f; 콘서트홀|concert hall|at|e
스키장|ski resort|at|; 농장|farm|on|h; 공장|factory|at|; 연구소|research institute|at|
대사관|embassy|at|; 법원|courthouse|at|; 문화 센터|cultural center|at|h e
지하철역|subway station|at|; 기념품 가게|souvenir shop|at|s f; 안내소|information desk|at|f
문구점|stationery store|at|f; 할인점|discount store|at|s; 면세점|duty-free shop|at|s f
"""

# event | noun | public, to be watched, held every year, to be attended (in a room)
EVENTS = """
콘서트|concert|p w; 축제|festival|p y; 전시회|exhibition|p w y; 마라톤|marathon|p y
연주회|recital|p w; 박람회|trade fair|p y; 영화제|film festival|p y; 불꽃놀이|fireworks show|p w
경매|auction|p a; 벼룩시장|flea market|p; 패션쇼|fashion show|p w y; 연극|play|w; 뮤지컬|musical|w
오페라|opera|w; 축구 경기|soccer game|p w; 야구 경기|baseball game|p w
농구 경기|basketball game|p w; 배구 경기|volleyball game|p w; 테니스 대회|tennis tournament|p y
수영 대회|swimming competition|p y; 노래 대회|singing contest|p y; 요리 대회|cooking contest|p y
체스 대회|chess tournament|p y; 말하기 대회|speech contest|p y; 글짓기 대회|essay contest|p y
사인회|book signing|p; 자선 행사|charity event|p y a; 바자회|bazaar|p a; 강연회|lecture|p a
토론회|debate|p a; 기자 회견|press conference|p a; 학술 대회|academic conference|p y a
국제회의|international conference|p y a; 취업 박람회|job fair|p y a; 도서전|book fair|p y a
꽃 축제|flower festival|p y; 김치 축제|kimchi festival|p y; 등불 축제|lantern festival|p y
재즈 공연|jazz performance|p w; 춤 공연|dance performance|p w; 인형극|puppet show|w
마술 쇼|magic show|p w; 결혼식|wedding|p a; 졸업식|graduation ceremony|p a
입학식|entrance ceremony|p a; 시상식|award ceremony|p a; 개막식|opening ceremony|p a
폐막식|closing ceremony|p a; 환영회|welcome party|p a; 송별회|farewell party|p a
생일 파티|birthday party|p a; 송년회|year-end party|p a; 동창회|class reunion|p a
설명회|information session|p a; 세미나|seminar|p a; 워크숍|workshop|p a; 회의|meeting|a
면접|interview|; 시험|exam|; 한국어 수업|Korean class|; 피아노 수업|piano lesson|
요가 수업|yoga class|; 요리 수업|cooking class|; 발표|presentation|; 합창 연습|choir practice|
소방 훈련|fire drill|; 직원 교육|staff training|a; 화상 회의|video conference|
기말시험|final exam|; 독서 모임|book club meeting|a; 가족 모임|family gathering|a; 소풍|picnic|
견학|field trip|
"""

# thing | its counter | noun | small durable goods, machines; the others are food, drink and flowers
GOODS = """
책|권|book|d; 공책|권|notebook|d; 잡지|권|magazine|d; 사전|권|dictionary|d; 만화책|권|comic book|d
엽서|장|postcard|d; 수건|장|towel|d; 티셔츠|장|T-shirt|d; 지도|장|map|d; 우산|개|umbrella|d
가방|개|bag|d; 모자|개|hat|d; 의자|개|chair|d; 손목시계|개|watch|d; 열쇠|개|key|d; 컵|개|cup|d
접시|개|plate|d; 지갑|개|wallet|d; 베개|개|pillow|d; 거울|개|mirror|d; 담요|장|blanket|d
연필|자루|pencil|d; 볼펜|자루|pen|d; 붓|자루|brush|d; 원피스|벌|dress|d; 양복|벌|suit|d
한복|벌|hanbok|d; 코트|벌|coat|d; USB|개|USB drive|d; 배낭|개|backpack|d; 반지|개|ring|d
양말|켤레|pair of socks|; 운동화|켤레|pair of sneakers|; 장갑|켤레|pair of gloves|
구두|켤레|pair of shoes|; 사과|개|apple|; 오렌지|개|orange|; 감자|개|potato|; 달걀|개|egg|
레몬|개|lemon|; 수박|통|watermelon|; 양파|개|onion|; 샌드위치|개|sandwich|; 햄버거|개|hamburger|
도넛|개|donut|; 케이크|개|cake|; 쿠키|개|cookie|; 초콜릿|상자|box of chocolates|
귤|상자|box of tangerines|; 커피|잔|cup of coffee|; 녹차|잔|cup of green tea|
주스|병|bottle of juice|; 물|병|bottle of water|; 우유|팩|carton of milk|; 와인|병|bottle of wine|
콜라|캔|can of cola|; 피자|판|pizza|; 국수|그릇|bowl of noodles|; 비빔밥|그릇|bowl of bibimbap|
김밥|줄|roll of gimbap|; 장미|송이|rose|; 튤립|송이|tulip|; 해바라기|송이|sunflower|
카메라|대|camera|m; 자전거|대|bicycle|m; 노트북|대|laptop|m; TV|대|TV|m; 냉장고|대|refrigerator|m
피아노|대|piano|m; 자동차|대|car|m; 프린터|대|printer|m; 세탁기|대|washing machine|m
오토바이|대|motorcycle|m; 책상|개|desk|m; 침대|개|bed|m; 소파|개|sofa|m; 기타|대|guitar|m
"""

# animal | its counter | noun | a pet
ANIMALS = """
고양이|마리|cat|p; 강아지|마리|puppy|p; 토끼|마리|rabbit|p; 앵무새|마리|parrot|p
금붕어|마리|goldfish|p; 햄스터|마리|hamster|p; 거북이|마리|turtle|p; 오리|마리|duck|p
닭|마리|chicken|p; 원숭이|마리|monkey|; 호랑이|마리|tiger|; 코끼리|마리|elephant|
기린|마리|giraffe|; 펭귄|마리|penguin|; 사슴|마리|deer|; 곰|마리|bear|; 사자|마리|lion|
얼룩말|마리|zebra|; 낙타|마리|camel|; 늑대|마리|wolf|
"""

# person of a group | counter | noun
GROUPS = """
학생|명|student; 손님|명|guest; 아이|명|child; 관광객|명|tourist; 직원|명|employee; 회원|명|member
기자|명|reporter; 선수|명|athlete; 자원봉사자|명|volunteer; 참가자|명|participant
승객|명|passenger; 외국인|명|foreigner; 음악가|명|musician; 전문가|명|expert; 교수|명|professor
"""

# job | noun
JOBS = """
선생님|teacher; 의사|doctor; 간호사|nurse; 요리사|chef; 변호사|lawyer; 가수|singer; 화가|painter
작가|writer; 배우|actor; 소방관|firefighter; 경찰관|police officer; 엔지니어|engineer
과학자|scientist; 번역가|translator; 통역사|interpreter; 건축가|architect; 약사|pharmacist
농부|farmer; 사진작가|photographer; 디자이너|designer; 조종사|pilot; 회계사|accountant
사서|librarian; 공무원|civil servant; 군인|soldier; 수의사|vet; 프로그래머|programmer
"""

# relative or acquaintance | noun
FAMILY = """
여동생|younger sister; 남동생|younger brother; 딸|daughter; 아들|son; 사촌|cousin; 친구|friend
동료|coworker; 이웃|neighbor; 룸메이트|roommate; 비서|secretary; 제자|student; 조수|assistant
"""

# means of travel over land | after "by"; and those with timetables
RIDES = "기차|train; 버스|bus; 자동차|car; KTX|KTX; 택시|taxi; 오토바이|motorcycle; 지하철|subway"
VEHICLES = "기차|train; 버스|bus; KTX|KTX; 급행열차|express train; 고속버스|express bus"

# what somebody does: object | stem | 아/어 | before 으 | verb | past | -ing | rest | pastime, skill
ACTIVITIES = """
간식을|먹|먹어||have|had|having|a snack|p; 국수를|먹|먹어||eat|ate|eating|noodles|
커피를|마시|마셔||drink|drank|drinking|coffee|p; 차를|마시|마셔||drink|drank|drinking|tea|p
책을|읽|읽어||read|read|reading|books|p; 신문을|읽|읽어||read|read|reading|the newspaper|p
음악을|듣|들어|들으|listen|listened|listening|to music|p
사진을|찍|찍어||take|took|taking|pictures|p; 그림을|그리|그려||draw|drew|drawing|pictures|p s
숙제를|하|해||do|did|doing|homework|p; |공부하|공부해||study|studied|studying||p
|일하|일해||work|worked|working||; |쉬|쉬어||rest|rested|resting||p
|산책하|산책해||take|took|taking|a walk|p; 자전거를|타|타||ride|rode|riding|a bicycle|s
친구를|만나|만나||meet|met|meeting|friends|p; 노래를|부르|불러||sing|sang|singing|songs|p s
춤을|추|춰||dance|danced|dancing||p s; 기타를|치|쳐||play|played|playing|the guitar|p s
피아노를|치|쳐||play|played|playing|the piano|s; 테니스를|치|쳐||play|played|playing|tennis|s
축구를|하|해||play|played|playing|soccer|s; 농구를|하|해||play|played|playing|basketball|s
배드민턴을|치|쳐||play|played|playing|badminton|s; |수영하|수영해||swim|swam|swimming||s
|운동하|운동해||exercise|exercised|exercising||; 편지를|쓰|써||write|wrote|writing|letters|p
시를|쓰|써||write|wrote|writing|poems|p s; 보고서를|쓰|써||write|wrote|writing|reports|
이메일을|확인하|확인해||check|checked|checking|email|
영화를|보|봐||watch|watched|watching|movies|; 텔레비전을|보|봐||watch|watched|watching|television|
뉴스를|보|봐||watch|watched|watching|the news|; 게임을|하|해||play|played|playing|games|
체스를|두|둬||play|played|playing|chess|p s; |요리하|요리해||cook|cooked|cooking||s
빵을|굽|구워|구우|bake|baked|baking|bread|s; 방을|청소하|청소해||clean|cleaned|cleaning|the room|
|빨래하|빨래해||do|did|doing|the laundry|; |설거지하|설거지해||wash|washed|washing|the dishes|
꽃에 물을|주|줘||water|watered|watering|the flowers|
중국어를|공부하|공부해||study|studied|studying|Chinese|
영어를|배우|배워||learn|learned|learning|English|; 요가를|하|해||do|did|doing|yoga|p
드럼을|치|쳐||play|played|playing|the drums|s
개를|산책시키|산책시켜||walk|walked|walking|the dog|; 이야기를|나누|나눠||chat|chatted|chatting||p
자원봉사를|하|해||do|did|doing|volunteer work|
단어를|외우|외워||memorize|memorized|memorizing|words|p
아이들을|가르치|가르쳐||teach|taught|teaching|children|
나무를|심|심어||plant|planted|planting|trees|; 쿠키를|만들|만들어||make|made|making|cookies|s
연을|날리|날려||fly|flew|flying|kites|; 스웨터를|뜨|떠||knit|knitted|knitting|sweaters|s
새를|돌보|돌봐||take|took|taking|care of birds|
"""

# what somebody does at a certain hour; the fields are those of an activity, without the last
ROUTINES = """
|일어나|일어나||get|got|getting|up; |자|자||go|went|going|to bed
|출근하|출근해||go|went|going|to work; |퇴근하|퇴근해||leave|left|leaving|work
집에|오|와||come|came|coming|home; 아침을|먹|먹어||have|had|having|breakfast
집에서|나가|나가||leave|left|leaving|home
"""

# what somebody does with a thing: stem | 아/어 | before 으 | verb | past | -ing | may be asked for
DEEDS = """
찾|찾아||find|found|finding|r; 잃어버리|잃어버려||lose|lost|losing|; 팔|팔아||sell|sold|selling|r
가져오|가져와||bring|brought|bringing|r; 버리|버려||throw away|threw away|throwing away|r
돌려주|돌려줘||return|returned|returning|r; 숨기|숨겨||hide|hid|hiding|
포장하|포장해||wrap|wrapped|wrapping|r; 빌리|빌려||borrow|borrowed|borrowing|r
보내|보내||send|sent|sending|r; 주문하|주문해||order|ordered|ordering|r
고르|골라||choose|chose|choosing|r
"""

# of cities: stem | 아/어 | before 으 | comparative | adjective
QUALITIES = """
활기차|활기차||livelier|lively; 편리하|편리해||more convenient|convenient
조용하|조용해||quieter|quiet; 따뜻하|따뜻해||warmer|warm; 시끄럽|시끄러워|시끄러우|noisier|noisy
춥|추워|추우|colder|cold; 덥|더워|더우|hotter|hot
아름답|아름다워|아름다우|more beautiful|beautiful; 유명하|유명해||more famous|famous
안전하|안전해||safer|safe; 복잡하|복잡해||more crowded|crowded; 깨끗하|깨끗해||cleaner|clean
시원하|시원해||cooler|cool; 멀|멀어||farther away|far away; 가깝|가까워|가까우|closer|close
"""

# of things: stem | 아/어 | before 으 | adjective | one looks for it
TRAITS = """
비싸|비싸||expensive|; 싸|싸||cheap|; 무겁|무거워|무거우|heavy|; 가볍|가벼워|가벼우|light|c
예쁘|예뻐||pretty|c; 평범하|평범해||ordinary|; 작|작아||small|c; 특별하|특별해||special|c
유용하|유용해||useful|; 낡|낡아||old|; 더럽|더러워|더러우|dirty|; 멋지|멋져||stylish|c
"""

# of venues, before the noun | superlative
RANKS = """
유명한|most famous; 큰|biggest; 조용한|quietest; 오래된|oldest; 깨끗한|cleanest
아름다운|most beautiful; 인기 있는|most popular; 새로운|newest; 작은|smallest
"""

# subject | stem | 아/어 | before 으 | after "if" | past | future | bad
WEATHER = """
비가|오|와||it rains|it rained|it will rain|b; 눈이|오|와||it snows|it snowed|it will snow|b
바람이|불|불어||it is windy|it was windy|it will be windy|b
안개가|끼|껴||it is foggy|it was foggy|it will be foggy|b
날씨가|맑|맑아||it is sunny|it was sunny|it will be sunny|
날씨가|흐리|흐려||it is cloudy|it was cloudy|it will be cloudy|b
날씨가|춥|추워|추우|it is cold|it was cold|it will be cold|b
날씨가|덥|더워|더우|it is hot|it was hot|it will be hot|b
날씨가|좋|좋아||the weather is good|the weather was good|the weather will be good|
날씨가|나쁘|나빠||the weather is bad|the weather was bad|the weather will be bad|b
"""

# before 때문에 | after "because of"
REASONS = """
폭우|heavy rain; 폭설|heavy snow; 태풍|a typhoon; 정전|a power outage; 파업|a strike
안개|thick fog; 교통사고|a traffic accident; 독감|the flu; 도로 공사|road construction
강풍|strong winds; 지진|an earthquake; 더위|the heat; 추위|the cold; 교통 체증|a traffic jam
열차 고장|a train breakdown
"""

# after a place | preposition
POSITIONS = "옆|next to; 앞|in front of; 뒤|behind; 맞은편|across from; 근처|near"

# when, with its particle | in English; {weekday} stands for each day of the week
FUTURE = """
내일|tomorrow; 모레|the day after tomorrow; 오늘 오후에|this afternoon; 오늘 저녁에|this evening
내일 아침에|tomorrow morning; 내일 저녁에|tomorrow evening; 다음 주에|next week
다음 달에|next month; 이번 주말에|this weekend; 다음 주말에|next weekend
이번 주 {weekday}에|this {weekday}; 다음 주 {weekday}에|next {weekday}
"""
DAY = """
어제|yesterday; 그저께|the day before yesterday; 어젯밤에|last night
어제 오후에|yesterday afternoon; 어제 아침에|yesterday morning; 지난주 {weekday}에|last {weekday}
"""
PAST = f"{DAY}지난주에|last week; 지난달에|last month; 지난 주말에|last weekend"
HABIT = """
매일|every day; 매일 아침|every morning; 매일 저녁|every evening; 매주|every week
주말마다|every weekend; 매주 {weekday}에|every {weekday}
"""
