"""Write synthetic sentence pairs with figures: prices, times of day, dates, shares, degrees and number words.

English writes 1,849.50 where German writes 1.849,50; an English trillion is a German Billion; half past eight is halb
neun; two thirds is 三分之二. Every pair fills a template with the same value on both sides, each written the way its
language writes it. The output depends only on this folder.

Usage: python3 synthetic_figures.py OUT    writes german-figures.en, .de and chinese-figures.en, .zh into OUT
"""

import re
from pathlib import Path
from random import Random
from typing import NamedTuple

from synthetic import between, pick, run, write

PAIRS = {"de": 40_000, "zh": 25_000}
SEEDS = {"de": 20_000, "zh": 30_000}
PHRASE_SHARE = 0.15  # of the draws: bare figures and short phrases; repeated ones fall out, and about 0.12 stay
WIDE_SHARE = 0.13  # of the Chinese lines with digits: １２３ for 123, which makes about a tenth of all lines


class Pair(NamedTuple):
    """The same text in English and in the other language."""

    en: str
    other: str


def pairs(text: str) -> list[Pair]:
    """Read lines of "English | other language"; empty lines do not count."""
    return [Pair(*line.split(" | ")) for line in text.splitlines() if line]


def glossary(text: str) -> list[Pair]:
    """Read "English=other" entries separated by commas or line ends; a name alone is the same in both."""
    entries = [entry.strip() for entry in re.split(r"[,\n]", text)]
    return [Pair(entry.split("=")[0], entry.split("=")[-1]) for entry in entries if entry]


# What fills the slots that are not figures.

MONTHS = "January February March April May June July August September October November December".split()
GERMAN_MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN_ONES = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
GERMAN_TENS = "null zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()

GERMAN_WORDS = {
    "city": glossary("""
        Berlin, Munich=München, Vienna=Wien, Cologne=Köln, Hamburg, Zurich=Zürich, Geneva=Genf, Nuremberg=Nürnberg
        Paris, London, Rome=Rom, Milan=Mailand, Prague=Prag, Warsaw=Warschau, Moscow=Moskau, Brussels=Brüssel, Madrid
        Lisbon=Lissabon, Copenhagen=Kopenhagen, Athens=Athen, Tokyo=Tokio, Beijing=Peking, New York, Chicago, Leipzig
    """),
    "country": glossary("""
        Germany=Deutschland, Austria=Österreich, France=Frankreich, Italy=Italien, Spain=Spanien, Poland=Polen
        Sweden=Schweden, Norway=Norwegen, Denmark=Dänemark, Greece=Griechenland, Hungary=Ungarn, Russia=Russland
        Japan, China, India=Indien, Brazil=Brasilien, Canada=Kanada, Mexico=Mexiko, Egypt=Ägypten, Australia=Australien
    """),
    "person": glossary("""
        Anna, Peter, Thomas, Julia, Martin, Sarah, Lukas, Maria, Paul, Laura, Felix, Emma, Jonas, Lena, David, Nina
        Mr. Schmidt=Herr Schmidt, Ms. Weber=Frau Weber, Mr. Wagner=Herr Wagner, Ms. Becker=Frau Becker
        Mr. Brown=Herr Brown, Ms. Miller=Frau Miller
    """),
    "company": glossary("Siemens, Bosch, Volkswagen, Toyota, Apple, Microsoft, Amazon, Airbus, Bayer, SAP, Samsung"),
    "thing": glossary("""
        bicycle=Das Fahrrad, laptop=Der Laptop, table=Der Tisch, washing machine=Die Waschmaschine, camera=Die Kamera
        sofa=Das Sofa, coat=Der Mantel, watch=Die Uhr, guitar=Die Gitarre, refrigerator=Der Kühlschrank
        television=Der Fernseher, ring=Der Ring, bed=Das Bett, printer=Der Drucker, lamp=Die Lampe
    """),
    "month": [Pair(*names) for names in zip(MONTHS, GERMAN_MONTHS, strict=True)],
    "part": glossary(
        "a third=ein Drittel, a quarter=ein Viertel, a fifth=ein Fünftel, a tenth=ein Zehntel, half=die Hälfte"
    ),
    "parts": glossary("""
        two thirds=zwei Drittel, three quarters=drei Viertel, two fifths=zwei Fünftel, three fifths=drei Fünftel
        four fifths=vier Fünftel, five sixths=fünf Sechstel, three eighths=drei Achtel, seven eighths=sieben Achtel
        three tenths=drei Zehntel, seven tenths=sieben Zehntel, nine tenths=neun Zehntel, two-thirds=zwei Drittel
        three-quarters=drei Viertel, two sevenths=zwei Siebtel
    """),
    "one": glossary("""
        a million=eine Million, one million=eine Million, a billion=eine Milliarde, one billion=eine Milliarde
        a trillion=eine Billion, one trillion=eine Billion, half a million=eine halbe Million
        half a billion=eine halbe Milliarde, half a trillion=eine halbe Billion
        a quarter of a million=eine Viertelmillion, 1 million=1 Million, 1 billion=1 Milliarde, 1 trillion=1 Billion
    """),
    "millions": glossary("""
        millions of=Millionen, billions of=Milliarden, trillions of=Billionen
        hundreds of millions of=Hunderte Millionen
        hundreds of billions of=Hunderte Milliarden, several trillion=mehrere Billionen
        several billion=mehrere Milliarden
        a few million=ein paar Millionen, a few trillion=ein paar Billionen, several million=mehrere Millionen
        many trillions of=viele Billionen, many billions of=viele Milliarden
    """),
}

CHINESE_WORDS = {
    "city": glossary("""
        Beijing=北京, Shanghai=上海, Shenzhen=深圳, Chengdu=成都, Wuhan=武汉, Hangzhou=杭州, Nanjing=南京, Xi'an=西安
        London=伦敦, Paris=巴黎, Berlin=柏林, Rome=罗马, Moscow=莫斯科, New York=纽约, Chicago=芝加哥, Tokyo=东京
        Seoul=首尔, Bangkok=曼谷, Singapore=新加坡, Dubai=迪拜, Cairo=开罗, Sydney=悉尼, Toronto=多伦多, Harbin=哈尔滨
    """),
    "country": glossary("""
        China=中国, Japan=日本, India=印度, Vietnam=越南, Thailand=泰国, Australia=澳大利亚, Canada=加拿大, Brazil=巴西
        Britain=英国, France=法国, Germany=德国, Italy=意大利, Spain=西班牙, Russia=俄罗斯, Egypt=埃及, Kenya=肯尼亚
    """),
    "person": glossary("""
        Mr. Wang=王先生, Ms. Li=李女士, Mr. Zhang=张先生, Ms. Chen=陈女士, Mr. Zhao=赵先生, Ms. Liu=刘女士
        Xiao Ming=小明, Xiao Li=小李, Anna=安娜, Peter=彼得, Tom=汤姆, Mary=玛丽, David=大卫, Lucy=露西, Jack=杰克
    """),
    "company": glossary("""
        Apple=苹果公司, Microsoft=微软, Google=谷歌, Tesla=特斯拉, Toyota=丰田, Samsung=三星, Siemens=西门子
        Huawei=华为
        Xiaomi=小米, Tencent=腾讯, Alibaba=阿里巴巴, Lenovo=联想, BYD=比亚迪
    """),
    "thing": glossary("""
        this coat=这件大衣, this camera=这台相机, this laptop=这台笔记本电脑, this pair of shoes=这双鞋
        this watch=这块手表
        this bicycle=这辆自行车, this sofa=这张沙发, this dictionary=这本词典, the phone=这部手机, the ticket=这张票
        the skirt=这条裙子, the lamp=这盏灯, the guitar=这把吉他, the printer=这台打印机
    """),
    "month": [Pair(month, f"{number}月") for number, month in enumerate(MONTHS, 1)],
    "part": glossary("""
        half=一半, a third=三分之一, one third=三分之一, a quarter=四分之一, one quarter=四分之一, a fifth=五分之一
        one fifth=五分之一, one tenth=十分之一, a tenth=十分之一, one sixth=六分之一, an eighth=八分之一
    """),
    "parts": glossary("""
        two thirds=三分之二, two-thirds=三分之二, three quarters=四分之三, three-quarters=四分之三, two fifths=五分之二
        three fifths=五分之三, four fifths=五分之四, five sixths=六分之五, three eighths=八分之三
        seven eighths=八分之七
        three tenths=十分之三, seven tenths=十分之七, nine tenths=十分之九, two sevenths=七分之二
    """),
    "times": glossary("""
        twice=两倍, three times=三倍, four times=四倍, five times=五倍, six times=六倍, eight times=八倍, ten times=十倍
        20 times=20倍, 3 times=3倍, 1.5 times=1.5倍, 2.5 times=2.5倍, one and a half times=一倍半, 100 times=100倍
        a hundred times=一百倍, 12 times=12倍, 4.5 times=4.5倍
    """),
}

# The templates. A slot names its kind; a 2 after the kind marks a second slot of that kind. The English side gives the
# range of a number: as powers of ten for digits, large, money and price, else as the numbers themselves.
#
#   digits  1,234,567                                price  19.99 or 1,849.50 in some currency
#   large   3.5 billion, never one of a unit         money  3.5 billion or 45,000 in some currency
#   words   twelve thousand                          number, decimal, percent  5, 3.5, 12.75%
#   small   two to twelve in words                   mixed  two and a half
#   clock   half past eight, 8:30 p.m.               hours  8 a.m. to 6 p.m.
#   date    March 5, 2019                            day    March 5
#   frost   minus 12 degrees                         low high  two numbers, the second larger (high takes no range)
#   short   45k, 3.5m                                year, past, decade, century, floor, and the words above

GERMAN_PHRASES = pairs("""
{digits:3-8} | {digits}
{large:6-15} | {large}
{large:6-6} people | {large} Menschen
{large:9-15} kilometers | {large} Kilometer
{one} | {one}
{one} dollars | {one} Dollar
{one} euros | {one} Euro
{price:0-2} | {price}
{price:3-4} | {price}
only {price:0-4} | nur {price}
{money:6-12} | {money}
about {money:6-12} | etwa {money}
{percent} | {percent}
an increase of {percent} | ein Anstieg um {percent}
at {clock} | um {clock}
{words} | {words}
{words} people | {words} Menschen
{parts} | {parts}
{date} | {date}
on {day} | am {day}
from {hours} | von {hours}
{frost} | {frost}
{decimal:1-99} kilometers | {decimal} Kilometer
{mixed} million | {mixed} Millionen
{mixed} billion euros | {mixed} Milliarden Euro
{mixed} trillion dollars | {mixed} Billionen Dollar
{mixed} hours | {mixed} Stunden
{digits:3-6} square meters | {digits} Quadratmeter
""")

GERMAN_SENTENCES = pairs("""
{digits:4-6} people live in the city. | In der Stadt leben {digits} Menschen.
The stadium has {digits:4-4} seats. | Das Stadion hat {digits} Plätze.
In {year}, {digits:4-6} tourists came to {city}. | Im Jahr {year} kamen {digits} Touristen nach {city}.
The town has a population of {digits:4-5}. | Die Stadt hat {digits} Einwohner.
{company} employs {digits:4-5} people worldwide. | {company} beschäftigt weltweit {digits} Menschen.
The library owns more than {digits:4-6} books. | Die Bibliothek besitzt mehr als {digits} Bücher.
The mountain is {digits:3-3} meters high. | Der Berg ist {digits} Meter hoch.
The car has already done {digits:4-5} kilometers. | Das Auto ist schon {digits} Kilometer gefahren.
The petition was signed by {digits:4-6} citizens. | Die Petition wurde von {digits} Bürgern unterzeichnet.
There are {digits:3-5} students at the university. | An der Universität gibt es {digits} Studierende.
How did {digits:4-5} fans get into the hall? | Wie kamen {digits} Fans in die Halle?
The video has been viewed {digits:5-7} times. | Das Video wurde {digits} Mal angesehen.
The company sold {digits:5-6} cars, {percent} more than in {year}. | \
Das Unternehmen verkaufte {digits} Autos, {percent} mehr als {year}.
The number of visitors rose from {low:3-5} to {high}. | Die Zahl der Besucher stieg von {low} auf {high}.
Attendance fell from {high} to {low:3-5} in one year. | Die Besucherzahl sank in einem Jahr von {high} auf {low}.
Between {low:3-5} and {high} people took part in the march. | \
An dem Marsch nahmen zwischen {low} und {high} Menschen teil.
The flat has {number:40-180} square meters and costs {digits:5-5} euros. | \
Die Wohnung hat {number} Quadratmeter und kostet {digits} Euro.
Of the {digits:4-6} voters, {percent} stayed at home. | Von den {digits} Wahlberechtigten blieben {percent} zu Hause.

The country has {large:6-6} inhabitants. | Das Land hat {large} Einwohner.
{large:6-6} people have no clean water. | {large} Menschen haben kein sauberes Wasser.
{country}'s debt has risen to {money:9-12}. | Die Schulden {country}s sind auf {money} gestiegen.
{country} owes its creditors {money:9-12}. | {country} schuldet seinen Gläubigern {money}.
The national debt amounts to {money:12-12}. | Die Staatsverschuldung beläuft sich auf {money}.
The galaxy contains {large:9-12} stars. | Die Galaxie enthält {large} Sterne.
The human body has {large:12-12} cells. | Der menschliche Körper hat {large} Zellen.
The star is {large:12-12} kilometers away. | Der Stern ist {large} Kilometer entfernt.
The market is worth {money:9-12}. | Der Markt ist {money} wert.
{company} is now worth more than {money:9-12}. | {company} ist inzwischen mehr als {money} wert.
The government wants to spend {money:6-12} on schools. | Die Regierung will {money} für Schulen ausgeben.
The plan costs {money:9-12} over ten years. | Der Plan kostet über zehn Jahre {money}.
{country}'s economy produces {money:9-12} a year. | Die Wirtschaft {country}s erwirtschaftet {money} im Jahr.
{company} made a profit of {money:6-9} in {year}. | {company} machte {year} einen Gewinn von {money}.
{company} invests {money:6-9} in {country}. | {company} investiert {money} in {country}.
Revenue rose by {percent:1-40} to {money:6-12}. | Der Umsatz stieg um {percent} auf {money}.
Exports fell by {percent:1-30} to {money:6-12}. | Die Exporte gingen um {percent} auf {money} zurück.
The banks lent {money:9-12} to companies. | Die Banken verliehen {money} an Unternehmen.
The computer can do {large:9-15} operations per second. | Der Rechner schafft {large} Operationen pro Sekunde.
The euro countries agreed on {money:9-12} in aid. | Die Euroländer einigten sich auf Hilfen von {money}.
Why does the project cost {money:6-12}? | Warum kostet das Projekt {money}?
This is about {large:9-12} euros, not {large2:6-9} euros. | Es geht um {large} Euro, nicht um {large2} Euro.
The damage is estimated at {money:6-12}. | Der Schaden wird auf {money} geschätzt.
The world economy lost {money:12-12} in {year}. | Im Jahr {year} verlor die Weltwirtschaft {money}.
The deficit was {money:6-12}, or {percent:1-12} of output. | \
Das Defizit betrug {money} oder {percent} der Wirtschaftsleistung.
From {low:6-12} dollars, the sum rose to {high} dollars. | Von {low} Dollar stieg die Summe auf {high} Dollar.
The foundation gave {money:5-8} to {number:12-90} schools. | Die Stiftung gab {number} Schulen {money}.
The trees bind {large:6-12} tons of carbon. | Die Bäume binden {large} Tonnen Kohlenstoff.
The ocean holds {large:6-12} pieces of plastic. | Im Meer schwimmen {large} Plastikteile.
About {large:9-12} emails were sent that day. | An diesem Tag wurden etwa {large} E-Mails verschickt.
The film brought in {money:6-6} worldwide. | Der Film spielte weltweit {money} ein.
A trillion is a thousand billion: {money:12-12} is a huge sum. | \
Eine Billion sind tausend Milliarden: {money} sind eine riesige Summe.
Not {large:9-9} but {large2:12-12} dollars are at stake. | \
Nicht {large} Dollar, sondern {large2} Dollar stehen auf dem Spiel.
Of the {money:12-12} in the fund, {percent} is invested in {country}. | \
Von den {money} im Fonds sind {percent} in {country} angelegt.
The bridge cost {one} euros. | Die Brücke kostete {one} Euro.
The prize is worth {one} dollars. | Der Preis ist {one} Dollar wert.
{country} will pay {one} euros. | {country} wird {one} Euro zahlen.
The company has lost {one} dollars since {year}. | Seit {year} hat das Unternehmen {one} Dollar verloren.
Who would not like to have {one} euros? | Wer hätte nicht gern {one} Euro?
The company is worth {one} euros. | Das Unternehmen ist {one} Euro wert.
The war cost {millions} dollars. | Der Krieg kostete {millions} Dollar.
The reform will save {millions} euros. | Die Reform wird {millions} Euro einsparen.

{person} paid {price:0-2} for the book. | {person} hat für das Buch {price} bezahlt.
The {thing} costs {price:1-4}. | {thing} kostet {price}.
The {thing} costs {price:2-4}, plus {price2:0-1} for delivery. | \
{thing} kostet {price}, dazu kommen {price2} für die Lieferung.
That comes to {price:0-3}, please. | Das macht {price}, bitte.
The bill came to {price:1-4}. | Die Rechnung belief sich auf {price}.
A ticket costs {price:1-2}, children pay {price2:0-0}. | Eine Karte kostet {price}, Kinder zahlen {price2}.
The monthly rent is {price:2-3}. | Die Monatsmiete beträgt {price}.
{person} earns {price:3-3} a month. | {person} verdient {price} im Monat.
Do you really want to pay {price:2-4} for that? | Willst du dafür wirklich {price} bezahlen?
Please transfer {price:1-4} by {day}. | Bitte überweisen Sie {price} bis zum {day}.
The invoice of {date} for {price:2-4} is still unpaid. | Die Rechnung vom {date} über {price} ist noch offen.
Shipping costs {price:0-1}. | Der Versand kostet {price}.
With the discount, you save {price:0-3}. | Mit dem Rabatt sparen Sie {price}.
The total price including VAT is {price:2-4}. | Der Gesamtpreis inklusive Mehrwertsteuer beträgt {price}.
A liter of milk costs {price:0-0}. | Ein Liter Milch kostet {price}.
{person} withdrew {price:1-3} from the account. | {person} hat {price} vom Konto abgehoben.
The hotel charges {price:1-2} per night. | Das Hotel verlangt {price} pro Nacht.
The share price fell to {price:0-2}. | Der Aktienkurs fiel auf {price}.
I have exactly {price:0-1} left. | Ich habe noch genau {price}.

Prices rose by {percent:1-12} in {month}. | Die Preise stiegen im {month} um {percent}.
{percent} of those surveyed were in favor. | {percent} der Befragten waren dafür.
The interest rate is {percent:1-9}. | Der Zinssatz liegt bei {percent}.
Unemployment fell to {percent:3-15} in {year}. | Die Arbeitslosigkeit sank {year} auf {percent}.
The beer contains {percent:4-9} alcohol. | Das Bier enthält {percent} Alkohol.
The party won {percent:5-45} of the vote, after {percent2:5-45} in {year}. | \
Die Partei erhielt {percent} der Stimmen, nach {percent2} im Jahr {year}.
Experts expect growth of {number:2-4} to {number2:5-9} percent. | \
Fachleute erwarten ein Wachstum von {number} bis {number2} Prozent.
We give a discount of {number:2-4} to {number2:5-20} percent. | Wir geben {number} bis {number2} Prozent Rabatt.
In {country}, the figure was {percent}. | In {country} waren es {percent}.

The train to {city} leaves at {clock}. | Der Zug nach {city} fährt um {clock} ab.
The meeting begins at {clock}. | Die Sitzung beginnt um {clock}.
{person} gets up at {clock} every day. | {person} steht jeden Tag um {clock} auf.
Can we meet at {clock}? | Können wir uns um {clock} treffen?
It is {clock}. | Es ist {clock}.
It was already {clock} when {person} came home. | Es war schon {clock}, als {person} nach Hause kam.
I will wait for you until {clock}. | Ich warte bis {clock} auf dich.
The accident happened at around {clock}. | Der Unfall ereignete sich gegen {clock}.
We have been waiting here since {clock}. | Wir warten hier seit {clock}.
The plane lands in {city} at {clock}. | Das Flugzeug landet um {clock} in {city}.
On {day}, the shop does not open until {clock}. | Am {day} öffnet das Geschäft erst um {clock}.
The film starts at {clock} and lasts {mixed} hours. | Der Film beginnt um {clock} und dauert {mixed} Stunden.
At {clock}, {person} was still at the office. | Um {clock} war {person} noch im Büro.
Breakfast is served from {hours}. | Frühstück gibt es von {hours}.
The museum is open from {hours}. | Das Museum ist von {hours} geöffnet.
The office is closed from {hours} today. | Das Büro ist heute von {hours} geschlossen.
Please call me back by {clock} tomorrow. | Bitte rufen Sie mich morgen bis {clock} zurück.
{person} has an appointment at {clock}. | {person} hat um {clock} einen Termin.
The last bus left at {clock}. | Der letzte Bus ist um {clock} abgefahren.

{person} was born on {date}. | {person} wurde am {date} geboren.
The contract was signed in {city} on {date}. | Der Vertrag wurde am {date} in {city} unterzeichnet.
The law takes effect on {day}. | Das Gesetz tritt am {day} in Kraft.
The exhibition runs until {day}. | Die Ausstellung läuft bis zum {day}.
We are on vacation from {month} {number:1-10} to {number2:11-28}. | \
Wir sind vom {number}. bis {number2}. {month} im Urlaub.
On {day}, {digits:3-4} runners will start in {city}. | Am {day} starten in {city} {digits} Läuferinnen und Läufer.
The house was built in the {century} century. | Das Haus wurde im {century}. Jahrhundert gebaut.
The song was popular in the {decade}s. | Das Lied war in den {decade}er-Jahren beliebt.
On {date}, the first train rolled to {city}. | Am {date} rollte der erste Zug nach {city}.

{words:3-4} people came to the concert. | {words} Menschen kamen zu dem Konzert.
The factory has {words:2-3} workers. | Die Fabrik hat {words} Beschäftigte.
{person} has written {words:2-2} letters. | {person} hat {words} Briefe geschrieben.
More than {words} families were left without power. | Mehr als {words} Familien waren ohne Strom.
The city needs {words:3-4} new flats within {small} years. | \
Die Stadt braucht innerhalb von {small} Jahren {words} neue Wohnungen.
{mixed} million people live in {city}. | In {city} leben {mixed} Millionen Menschen.
The tunnel costs {mixed} billion euros. | Der Tunnel kostet {mixed} Milliarden Euro.
The fund manages {mixed} trillion dollars. | Der Fonds verwaltet {mixed} Billionen Dollar.
It takes {mixed} hours to get to {city}. | Nach {city} braucht man {mixed} Stunden.
{person} lived in {country} for {mixed} years. | {person} lebte {mixed} Jahre in {country}.
{parts} of the pupils walk to school. | {parts} der Schüler gehen zu Fuß zur Schule.
{parts} of the members voted against it. | {parts} der Mitglieder stimmten dagegen.
The bottle is {parts} full. | Die Flasche ist zu {parts}n gefüllt.
Forests cover {parts} of the country. | Wälder bedecken {parts} des Landes.
Sales fell by {part} in {month}. | Der Absatz ging im {month} um {part} zurück.
We have already done {part} of the work. | Wir haben schon {part} der Arbeit erledigt.
{person} spends {part} of the money on rent. | {person} gibt {part} des Geldes für die Miete aus.
In {city} it was {frost} last night. | In {city} waren es letzte Nacht {frost}.
At {frost}, the lake freezes over. | Bei {frost} friert der See zu.
Temperatures drop to {frost} in {month}. | Die Temperaturen sinken im {month} auf {frost}.
The highest temperature was {decimal:20-39} degrees Celsius. | Die höchste Temperatur betrug {decimal} Grad Celsius.
The parcel weighs {decimal:1-30} kg. | Das Paket wiegt {decimal} kg.
The lake is {decimal:1-40} kilometers long and {number:11-90} meters deep. | \
Der See ist {decimal} Kilometer lang und {number} Meter tief.
The recipe needs {decimal:1-3} liters of water and {number:100-900} grams of flour. | \
Für das Rezept braucht man {decimal} Liter Wasser und {number} Gramm Mehl.
The board is {decimal:1-9} cm thick. | Das Brett ist {decimal} cm dick.
{person} ran {number:100-800} meters in {decimal:55-190} seconds. | \
{person} lief {number} Meter in {decimal} Sekunden.
On average, a household has {decimal:1-3} children and {decimal2:1-3} cars. | \
Im Durchschnitt hat ein Haushalt {decimal} Kinder und {decimal2} Autos.
The car uses {decimal:4-9} liters per 100 kilometers. | Das Auto verbraucht {decimal} Liter auf 100 Kilometer.
The earthquake had a magnitude of {decimal:4-7}. | Das Erdbeben hatte eine Stärke von {decimal}.
In {year}, the city spent {money:6-8} on roads, {percent} more than the year before, and only {price:3-4} on trees. | \
{year} gab die Stadt {money} für Straßen aus, {percent} mehr als im Jahr zuvor, und nur {price} für Bäume.
""")

CHINESE_PHRASES = pairs("""
{words:2-9} | {words}
{words:2-9} people | {words}人
{large:4-12} | {large}
{large:4-9} people | {large}人
{money:4-12} | {money}
about {money:4-12} | 大约{money}
{price:0-4} | {price}
only {price:0-4} | 只要{price}
{percent} | {percent}
an increase of {percent} | 增长{percent}
{parts} | {parts}
{part} of the students | {part}的学生
{parts} of the world's population | 世界人口的{parts}
{clock} | {clock}
from {hours} | {hours}
{date} | {date}
{frost} | {frost}
{decimal:1-99} kilometers | {decimal}公里
{number:13-99} years old | {number}岁
on the {floor} floor | 在{floor}楼
{times} as large as before | 是以前的{times}
{mixed} hours | {mixed}小时
""")

CHINESE_SENTENCES = pairs("""
{words:3-4} people took part in the race. | {words}人参加了这场比赛。
The factory has {words:2-4} workers. | 这家工厂有{words}名工人。
{person} owns {words:2-4} books. | {person}有{words}本书。
The school received {words:3-6} yuan in donations. | 这所学校收到了{words}元捐款。
More than {words:3-6} people lost their homes. | 超过{words}人失去了家园。
The city planted {words:3-6} trees in {year}. | {year}年，这座城市种了{words}棵树。
It took {words:3-4} soldiers to build the wall. | 修建这道城墙用了{words}名士兵。
Are there really {words:2-4} stars on this map? | 这张图上真的有{words}颗星星吗？
The village has {words:2-3} inhabitants, {parts} of them farmers. | 这个村子有{words}名居民，其中{parts}是农民。
At least {words:2-6} copies were sold in {month}. | {month}至少卖出了{words}本。
{words:3-5} years ago, people already lived here. | {words}年前，这里就有人居住。
{person} walks {words:3-3} steps every day. | {person}每天走{words}步。

{short:4-9} people watched the game. | {short}人观看了这场比赛。
The app has {short:4-9} users. | 这款应用有{short}用户。
{person} has {short:4-7} followers. | {person}有{short}粉丝。
The video got {short:4-8} views in {small} days. | 这段视频{small}天内获得了{short}次观看。
The company was sold for {money:6-11}. | 该公司以{money}的价格售出。
{company} made {money:6-10} in profit in {year}. | {year}年，{company}盈利{money}。
{company} plans to invest {money:6-10} in {country}. | {company}计划在{country}投资{money}。
{company}'s revenue rose {percent:1-40} to {money:8-11}. | {company}的营收增长{percent}，达到{money}。
The house in {city} costs {money:5-7}. | {city}的这套房子售价{money}。
{country}'s debt has reached {money:10-12}. | {country}的债务已达{money}。
The city will spend {money:6-10} on new subway lines. | 该市将投入{money}修建新的地铁线路。
Losses are put at {money:5-10}. | 损失估计为{money}。
How did they lose {money:5-9}? | 他们是怎么亏掉{money}的？
{person} earns {money:4-5} a year. | {person}一年挣{money}。
The population fell from {high} to {low:5-8}. | 人口从{high}减少到{low}。
Sales rose from {low:4-8} to {high} in one year. | 销量在一年内从{low}增至{high}。
{country} has {large:6-8} inhabitants, {percent} of them over 65. | {country}有{large}居民，其中{percent}超过65岁。
The fund manages {money:9-12}, {parts} of it in stocks. | 该基金管理着{money}，其中{parts}投资于股票。
The market was worth {money:8-12} in {year}, {times} as much as in {past}. | \
{year}年该市场规模为{money}，是{past}年的{times}。

{parts} of the employees are women. | {parts}的员工是女性。
{parts} of the Earth is covered by water. | 地球的{parts}被水覆盖。
{person} spends {part} of the salary on rent. | {person}把{part}的工资花在房租上。
We have finished {part} of the work. | 我们已经完成了{part}的工作。
{part} of the apples were rotten. | {part}的苹果烂了。
Only {part} of the voters agreed. | 只有{part}的选民同意。
{parts} of the houses were damaged in the storm. | {parts}的房屋在暴风雨中受损。
Profits fell by {part} in the first half of the year. | 上半年利润下降了{part}。
{parts} of the students passed the exam. | {parts}的学生通过了考试。
Why did {part} of the guests leave early? | 为什么{part}的客人提前离开了？
A motion needs {parts} of the votes to pass. | 一项动议需要{parts}的票数才能通过。
The tank is {parts} full. | 水箱已满{parts}。
It takes {mixed} hours to drive to {city}. | 开车去{city}要{mixed}小时。

It was {frost} in {city} last night. | 昨晚{city}的气温是{frost}。
The temperature fell to {frost}. | 气温降到了{frost}。
In {month}, temperatures can drop to {frost}. | {month}气温可降至{frost}。
The lake freezes over at {frost}. | 湖面在{frost}时结冰。
Can you work outside at {frost}? | {frost}的时候你能在户外工作吗？
{frost} in the morning, {number:1-9} degrees at noon. | 早上{frost}，中午{number}度。
Keep the vaccine at {frost}. | 请将疫苗保存在{frost}。
The highest temperature today is {number:10-39} degrees. | 今天最高气温{number}度。
{person} has a fever of {decimal:37-40} degrees. | {person}发烧到{decimal}度。

The meeting starts at {clock}. | 会议{clock}开始。
{person} gets up at {clock} every day. | {person}每天{clock}起床。
The train to {city} leaves at {clock}. | 去{city}的火车{clock}发车。
Shall we meet at {clock}? | 我们{clock}见面好吗？
It is {clock} now. | 现在是{clock}。
The plane arrives in {city} at {clock}. | 飞机{clock}抵达{city}。
The shop is open from {hours}. | 这家店的营业时间是{hours}。
{person} works from {hours}. | {person}的工作时间是{hours}。
The accident happened at {clock} on {day}. | 事故发生在{day}{clock}。
Please call me before {clock}. | 请在{clock}之前给我打电话。
We waited until {clock}. | 我们一直等到{clock}。
The film begins at {clock} and lasts {number:80-180} minutes. | 电影{clock}开始，时长{number}分钟。
{person} did not come home until {clock}. | {person}直到{clock}才回家。
At {clock}, the lights went out. | {clock}，灯灭了。
The last bus leaves at {clock}. | 末班车{clock}发车。
Does the class start at {clock}? | 是{clock}上课吗？

{percent} of respondents are satisfied. | {percent}的受访者表示满意。
Prices rose by {percent:1-12} in {month}. | {month}物价上涨了{percent}。
The success rate is {percent}. | 成功率为{percent}。
Unemployment fell from {percent:9-15} to {percent2:3-8}. | 失业率从{percent}降至{percent2}。
{percent} of the patients recovered within {number:13-60} days. | {percent}的患者在{number}天内康复。
Exports grew by {percent:1-30}, imports by {percent2:1-30}. | 出口增长{percent}，进口增长{percent2}。
Humidity reached {percent}. | 湿度达到{percent}。
The bank lowered the interest rate to {percent:1-5}. | 银行把利率降到{percent}。
Shares in {company} lost {percent:1-15} on {day}. | {company}的股价在{day}下跌了{percent}。

{person} was born on {date}. | {person}出生于{date}。
The contract was signed in {city} on {date}. | 合同于{date}在{city}签署。
The exhibition opens on {day}. | 展览{day}开幕。
We are on holiday from {month} {number:1-10} to {number2:11-28}. | 我们{month}{number}日到{number2}日放假。
The bridge was built in the {century} century. | 这座桥建于{century}世纪。
The song was popular in the {decade}s. | 这首歌在20世纪{decade}年代很流行。
The deadline is {clock} on {day}. | 截止时间是{day}{clock}。
On {date}, {short:4-6} people gathered in {city}. | {date}，{short}人聚集在{city}。

{thing} costs {price:1-4}. | {thing}卖{price}。
How much is {thing}? {price:1-4}. | {thing}多少钱？{price}。
{person} paid {price:0-3} for lunch. | {person}午饭花了{price}。
The total is {price:1-4}. | 一共{price}。
The ticket costs {price:0-2}, the hotel {price2:2-3}. | 票价{price}，酒店{price2}。
The monthly rent went up to {price:3-4}. | 每月房租涨到了{price}。
{thing} was {price:3-3} and is now only {price2:1-2}. | {thing}原价{price}，现在只要{price2}。
{person} received a refund of {price:0-3}. | {person}收到了{price}的退款。
A kilo of apples costs {price:0-0}. | 一公斤苹果{price}。
The bill for {month} is {price:1-3}. | {month}的账单是{price}。
The shares closed at {price:0-2}, up {percent:1-9}. | 该股收于{price}，上涨{percent}。
Would you pay {price:1-4} for it? | 你愿意为它付{price}吗？

{person} is {number:13-99} years old. | {person}今年{number}岁。
{person} became a teacher at the age of {number:22-45}. | {person}{number}岁时当了老师。
The average age is {decimal:20-60} years. | 平均年龄为{decimal}岁。
{person} has a {small}-year-old son. | {person}有一个{small}岁的儿子。
Children under {small} travel free. | {small}岁以下儿童免费乘车。
{person} lives on the {floor} floor. | {person}住在{floor}楼。
The building has {number:13-90} floors and is {number2:100-600} meters high. | 这栋楼有{number}层，高{number2}米。
My office is on the {floor} floor. | 我的办公室在{floor}楼。
The fire broke out on the {floor} floor at {clock}. | {clock}，{floor}楼发生火灾。
It is {decimal:1-99} kilometers to {city}. | 到{city}有{decimal}公里。
{person} runs {decimal:2-20} kilometers every morning. | {person}每天早上跑{decimal}公里。
The tunnel is {decimal:1-40} kilometers long and cost {money:7-10}. | 这条隧道长{decimal}公里，耗资{money}。
The station is {number:100-900} meters away. | 车站离这里{number}米。
The parcel weighs {decimal:1-30} kilograms. | 这个包裹重{decimal}公斤。
The ship is {number:100-400} meters long and {decimal:20-60} meters wide. | 这艘船长{number}米，宽{decimal}米。
The car was going {number:60-190} kilometers per hour. | 这辆车的时速是{number}公里。

There are {times} as many cars as in {year}. | 现在的汽车数量是{year}年的{times}。
{city} is {times} as big as my hometown. | {city}的面积是我家乡的{times}。
The new computer is {times} as fast as the old one. | 新电脑的速度是旧电脑的{times}。
{person} earns {times} as much as I do. | {person}挣的钱是我的{times}。
{company} has {times} as many employees as in {year}. | {company}的员工人数是{year}年的{times}。
The price is {times} what it was in {year}. | 现在的价格是{year}年的{times}。
The population has doubled to {large:5-8} since {year}. | 自{year}年以来，人口翻了一番，达到{large}。
Is the river really {times} as long as this one? | 那条河的长度真的是这条河的{times}吗？
The number of users tripled to {short:5-8}. | 用户数量增至原来的三倍，达到{short}。

In {year}, {number:13-90} percent of the {words:2-4} workers earned less than {price:3-3} a month. | \
{year}年，{words}名工人中有{number}%月收入不到{price}。
On {day} at {clock}, {number:13-90} people aged {number2:20-40} to {number3:50-80} met on the {floor} floor. | \
{day}{clock}，{number}名{number2}至{number3}岁的人在{floor}楼见面。
The trip of {decimal:20-90} kilometers takes {number:20-90} minutes and costs {price:0-1}. | \
全程{decimal}公里，需要{number}分钟，票价{price}。
{company} has {short:4-6} employees in {number:13-60} countries and sales of {money:8-11}. | \
{company}在{number}个国家有{short}名员工，销售额为{money}。
The hall is {decimal:20-60} meters long, {decimal2:10-30} meters wide and has {words:2-3} seats. | \
大厅长{decimal}米，宽{decimal2}米，有{words}个座位。
""")

COINS = {
    "de": glossary("""
        ${}={} Dollar, ${}={} US-Dollar, ${}={} $, {} dollars={} Dollar, €{}={} Euro, €{}={} Euro, €{}={} €, €{}={} €
        {} euros={} Euro, £{}={} Pfund, £{}={} £, {} pounds={} Pfund, {} Swiss francs={} Schweizer Franken
    """),
    "zh": glossary("""
        ${}={}美元, ${}={}美元, {} dollars={}美元, ¥{}={}元, {} yuan={}元, {} yuan={}元, €{}={}欧元, {} euros={}欧元
        £{}={}英镑, {} pounds={}英镑, HK${}={}港元
    """),
}
UNITS = {15: "quadrillion", 12: "trillion", 9: "billion", 6: "million"}
SHORT_UNITS = {12: "tn", 9: "bn", 6: "m", 3: "k"}
GERMAN_UNITS = {15: "Billiarden", 12: "Billionen", 9: "Milliarden", 6: "Millionen"}
SHORT_GERMAN_UNITS = {12: "Bio.", 9: "Mrd.", 6: "Mio."}
CHINESE_UNITS = {12: "万亿", 8: "亿", 4: "万"}
SIGNS = {"$": "Dollar", "€": "Euro", "£": "Pfund"}  # what follows Millionen instead of a sign
SPANS = {
    "year": (1990, 2024),
    "past": (1970, 1989),
    "decade": (192, 199),
    "century": (11, 20),
    "floor": (2, 40),
    "mixed": (1, 9),
}
SLOT = re.compile(r"\{([a-z]+)([23]?)(?::(\d+)-(\d+))?\}")


# Numbers.


def draw_value(rng: Random, low: int, high: int) -> int:
    """Choose a value whose power of ten lies from low to high, with one to three digits before its zeros."""
    power = between(rng, low, high)
    digits = min(pick(rng, (1, 1, 2, 2, 2, 3, 3)), power + 1)
    return max(between(rng, 10 ** (digits - 1), 10**digits - 1), 2) * 10 ** (power - digits + 1)


def draw_large(rng: Random, low: int, high: int) -> int:
    """Choose a value of 1.1 to 999 of a unit; every unit from low to high comes as often, so that trillions do."""
    power = between(rng, low // 3, high // 3) * 3
    value = draw_value(rng, 0, 2 if power < 12 else 1) if rng.random() < 0.5 else between(rng, 11, 999) / 10
    return round(max(value, 1.1) * 10) * 10 ** (power - 1)


def english_words(value: int) -> str:
    """Write a value below a million in words: three hundred and fifty thousand."""
    if value >= 1000:
        rest = english_words(value % 1000) if value % 1000 else ""
        return f"{english_words(value // 1000)} thousand {rest}".strip()
    if value >= 100:
        rest = f" and {english_words(value % 100)}" if value % 100 else ""
        return f"{ONES[value // 100]} hundred{rest}"
    if value < 20:
        return ONES[value]
    return TENS[value // 10] + (f"-{ONES[value % 10]}" if value % 10 else "")


def german_words(value: int) -> str:
    """Write a value below a million in words: dreihundertfünfzigtausend."""
    if value >= 1000:
        rest = german_words(value % 1000) if value % 1000 else ""
        return f"{german_words(value // 1000)}tausend{rest}".replace("einst", "eint")
    if value >= 100:
        rest = german_words(value % 100) if value % 100 else ""
        return f"{GERMAN_ONES[value // 100]}hundert{rest}".replace("einsh", "einh")
    if value < 20:
        return GERMAN_ONES[value]
    one = "ein" if value % 10 == 1 else GERMAN_ONES[value % 10]
    return (f"{one}und" if value % 10 else "") + GERMAN_TENS[value // 10]


def chinese_words(value: int) -> str:
    """Write a value in Chinese characters: 一万两千, 三百五十万, 十二亿."""
    text = ""
    for unit, name in ((10**8, "亿"), (10**4, "万"), (1, "")):
        section = value // unit % 10**4
        digits = zip(f"{section:04}", "千百十 ", strict=True)
        written = "".join("零一二三四五六七八九"[int(digit)] + mark for digit, mark in digits)
        written = re.sub("零+", "零", re.sub("零[千百十 ]", "零", written)).strip(" ").rstrip("零")
        text += (written if text else written.lstrip("零")) + (name if section else "")
    text = re.sub("(?<![十零])二(?=[千万亿])", "两", re.sub("^一十", "十", text))
    return re.sub("^二(?=百)", "两", text).replace(" ", "")


def in_german(english: str) -> str:
    """Write English digits the German way: 1.849,50 for 1,849.50."""
    return english.translate(str.maketrans(",.", ".,"))


def in_units(value: int, units: dict[int, str], space: str = " ") -> str:
    """Write 3.5 million or 3.5m, or all digits of a value below the smallest unit."""
    power = next((power for power in units if value >= 10**power), 0)
    return f"{value / 10**power:.6g}{space}{units[power]}" if power else f"{value:,}"


def write_english(rng: Random, value: int, short_share: float) -> str:
    """Write 45,000 or 3.5 million; a share of them 45k or 3.5m."""
    if rng.random() < short_share and value < 10**15 and (value >= 10**6 or value % 1000 == 0):
        return in_units(value, SHORT_UNITS, "")
    return in_units(value, UNITS)


def write_german(rng: Random, value: int) -> str:
    """Write 45.000 or 3,5 Millionen; a tenth of them 3,5 Mio."""
    short = value < 10**15 and rng.random() < 0.1
    return in_german(in_units(value, GERMAN_UNITS)) if not short else short_german(value)


def short_german(value: int) -> str:
    """Write 3,5 Mio., which keeps its point."""
    number, space, unit = in_units(value, SHORT_GERMAN_UNITS).partition(" ")
    return in_german(number) + space + unit


def write_chinese(rng: Random, value: int) -> str:
    """Write 3.5万, 3.5亿 or 3.5万亿; now and then 三万五千 or 35000."""
    if len(str(value).rstrip("0")) <= 2 and value < 10**12 and rng.random() < 0.2:
        return chinese_words(value)
    if value < 10**6 and (value < 10**4 or value % 100 or rng.random() < 0.2):
        return f"{value}"
    return in_units(value, CHINESE_UNITS, "")


# Times of day.


class Clock(NamedTuple):
    """A time of day, and how it is to be written: short (3 p.m.), long (15:40), bare or day (in words)."""

    hour: int
    minute: int
    style: str


def draw_clock(rng: Random) -> Clock:
    """Choose a time of day, most often at a full, half or quarter hour."""
    style = pick(rng, ("short", "short", "short", "long", "bare", "bare", "bare", "day", "day"))
    minute = pick(rng, (0, 0, 15, 30, 30, 30, 45, *range(5, 60, 5)))
    if style == "short":
        return Clock(between(rng, 1, 23), minute, style)
    if style == "long":
        return Clock(between(rng, 6, 23), between(rng, 1, 59), style)
    if style == "bare":
        return Clock(between(rng, 1, 12), minute, style)
    return Clock(pick(rng, (0, 2, 3, 6, 7, 8, 9, 12, 13, 14, 15, 16, 18, 19, 20, 21)), minute, style)


def clock_english(rng: Random, clock: Clock) -> str:
    """Write a time of day in English."""
    hour, minute, style = clock
    if style == "long":
        return f"{hour}:{minute:02}"
    if style == "short":
        half = pick(rng, (" a.m.", " am") if hour < 12 else (" p.m.", " pm", "pm"))
        return f"{(hour - 1) % 12 + 1}" + (f":{minute:02}" if minute else "") + half
    if style == "day" and hour in (0, 12):
        return "noon" if hour else "midnight"
    this, following = ONES[(hour - 1) % 12 + 1], ONES[hour % 12 + 1]
    quarter = pick(rng, ("quarter", "a quarter"))
    words = {0: f"{this} o'clock", 15: f"{quarter} past {this}", 30: f"half past {this}"}
    words[45] = f"{quarter} to {following}"
    past = f"{english_words(minute)} past {this}" if minute < 30 else f"{english_words(60 - minute)} to {following}"
    parts = (" in the morning", " in the afternoon", " in the evening")
    return words.get(minute, past) + (parts[(hour >= 12) + (hour >= 18)] if style == "day" else "")


def clock_german(rng: Random, clock: Clock) -> str:
    """Write a time of day in German: 20.30 Uhr, halb neun, fünf vor halb neun."""
    hour, minute, style = clock
    if style in ("short", "long"):
        return f"{hour}" + (f"{pick(rng, '.:')}{minute:02}" if minute else "") + " Uhr"
    if style == "day" and hour in (0, 12):
        return "zwölf Uhr mittags" if hour else "Mitternacht"
    this, following = GERMAN_ONES[(hour - 1) % 12 + 1], GERMAN_ONES[hour % 12 + 1]
    words = {
        0: f"{this.replace('eins', 'ein')} Uhr", 15: f"Viertel nach {this}", 30: f"halb {following}",
        25: f"fünf vor halb {following}", 35: f"fünf nach halb {following}", 45: f"Viertel vor {following}",
    }  # fmt: skip
    past = f"{german_words(minute)} nach {this}" if minute < 30 else f"{german_words(60 - minute)} vor {following}"
    parts = ("nachts" if hour < 5 else "morgens", "nachmittags", "abends")
    return words.get(minute, past) + (f" {parts[(hour >= 12) + (hour >= 18)]}" if style == "day" else "")


def clock_chinese(rng: Random, clock: Clock) -> str:
    """Write a time of day in Chinese: 下午3点, 上午八点半, 差一刻九点."""
    hour, minute, style = clock
    if style == "long":
        return pick(rng, (f"{hour}:{minute:02}", f"{hour}点{minute:02}分"))
    if style == "day" and hour in (0, 12):
        return pick(rng, ("中午", "中午十二点")) if hour else pick(rng, ("午夜", "半夜十二点"))
    ends = {5: "凌晨", 12: "上午", 13: "中午", 18: "下午", 24: "晚上"}
    part = next(name for end, name in ends.items() if hour < end)
    if part == "上午" and hour < 9:
        part = pick(rng, ("上午", "早上"))
    if style == "short":
        hour = (hour - 1) % 12 + 1
        written = f"{hour}点半" if minute == 30 else f"{hour}点{minute}分".replace("点5分", "点05分")
        return part + (pick(rng, (written, f"{hour}:{minute:02}")) if minute else f"{hour}点")
    this, following = ("两" if name == 2 else chinese_words(name) for name in ((hour - 1) % 12 + 1, hour % 12 + 1))
    words = {0: f"{this}点", 5: f"{this}点零五分", 10: f"{this}点十分", 15: f"{this}点一刻", 30: f"{this}点半"}
    written = words.get(minute, f"{this}点{chinese_words(minute)}" + pick(rng, ("", "分")))
    if style == "day":
        return part + written
    if minute >= 45 and rng.random() < 0.5:
        return f"差{'一刻' if minute == 45 else chinese_words(60 - minute) + '分'}{following}点"
    return written + (pick(rng, ("", "钟")) if minute == 0 else "")


# Slots.


def draw_clock_pair(rng: Random, language: str) -> Pair:
    """Choose a time of day."""
    clock = draw_clock(rng)
    return Pair(clock_english(rng, clock), CLOCKS[language](rng, clock))


def draw_hours(rng: Random, language: str) -> Pair:
    """Choose when something opens and closes: 8 a.m. to 6:30 p.m., 8 bis 18.30 Uhr, 上午8点到晚上6点半."""
    opens, closes = (Clock(between(rng, *span), pick(rng, (0, 0, 30)), "short") for span in ((7, 11), (13, 22)))
    english = f"{clock_english(rng, opens)} to {clock_english(rng, closes)}"
    first, last = CLOCKS[language](rng, opens), CLOCKS[language](rng, closes)
    english = re.sub(r" ?([ap])\.?m\.?", pick(rng, (r" \1.m.", r" \1m", r"\1m")), english)
    if language == "zh":
        return Pair(english, re.sub(":30", "点半", f"{first}到{last}"))
    return Pair(english, re.sub("[.:]", pick(rng, ".:"), f"{first.removesuffix(' Uhr')} bis {last}"))


def draw_percent(rng: Random, low: int, high: int, language: str) -> Pair:
    """Choose a percentage: 12%, 12.75 percent, twelve percent."""
    value = between(rng, low, high)
    tenths = f"{value}.{between(rng, 1, 9)}"
    number = pick(rng, (f"{value}", f"{value}", tenths, tenths, f"{tenths}5"))
    words = "." not in number and value > 1 and rng.random() < 0.3
    english = pick(rng, (f"{number}%", f"{number}%", f"{number} percent"))
    if language == "zh":
        if words:
            return Pair(pick(rng, (english, f"{english_words(value)} percent")), f"百分之{chinese_words(value)}")
        return Pair(english, f"{number}%")
    if words and value <= 12:
        return Pair(f"{english_words(value)} percent", f"{german_words(value)} Prozent")
    sign = pick(rng, ("%", "%", "Prozent")) if english.endswith("%") else "Prozent"
    return Pair(english, f"{in_german(number)} {sign}")


def draw_frost(rng: Random, language: str) -> Pair:
    """Choose a temperature below zero."""
    value = between(rng, 2, 39)
    tenth = f"{value}.{between(rng, 1, 9)}"
    word, chinese = english_words(value), chinese_words(value) if value > 2 else "两"
    styles = {
        "de": [
            Pair(f"minus {value} degrees", f"minus {value} Grad"),
            Pair(f"minus {tenth} degrees", f"minus {in_german(tenth)} Grad"),
            Pair(f"{value} degrees below zero", f"{value} Grad unter null"),
            Pair(f"{word} degrees below zero", f"{german_words(value)} Grad unter null"),
            Pair(f"-{value} °C", f"-{value} °C"),
            Pair(f"-{tenth}°C", f"-{in_german(tenth)} °C"),
        ],
        "zh": [
            Pair(f"minus {value} degrees", f"零下{value}度"),
            Pair(f"minus {value} degrees Celsius", f"零下{value}摄氏度"),
            Pair(f"{value} degrees below zero", f"零下{value}度"),
            Pair(f"minus {word} degrees", f"零下{chinese}度"),
            Pair(f"-{value}°C", pick(rng, (f"零下{value}摄氏度", f"-{value}℃", f"-{value}°C"))),
            Pair(f"-{tenth}°C", pick(rng, (f"零下{tenth}摄氏度", f"-{tenth}℃"))),
        ],
    }
    return pick(rng, styles[language])


def draw_words(rng: Random, low: int, high: int, language: str) -> Pair:
    """Choose a number and write it in words: twelve thousand, two and a half million."""
    power = between(rng, low, high)
    value = between(rng, 2, 9) * 10**power if rng.random() < 0.4 else between(rng, 11, 99) * 10 ** (power - 1)
    if power >= 6:
        unit = power // 3 * 3
        half = power % 3 == 0 and rng.random() < 0.4
        value = between(rng, 2, 9) * 10**power + half * 10**power // 2
        english = f"{english_words(value // 10**unit)}{' and a half' if half else ''} {UNITS[unit]}"
    else:
        english = english_words(value)
    if language == "de":
        return Pair(english, german_words(value))
    return Pair(english, chinese_words(value) if rng.random() < 0.75 else write_chinese(rng, value))


def draw_price(rng: Random, low: int, high: int, language: str) -> Pair:
    """Choose an amount, most often with cents: 19.99, 1,849.50; German and English may write 1,849.00."""
    power = between(rng, low, high)
    whole = max(between(rng, 10**power, 10 ** (power + 1) - 1), 2)
    cents = pick(rng, ("99", "50", "95", "90", *(f"{between(rng, 1, 99):02}" for _ in range(4))))
    if rng.random() < 0.2:
        cents = "00" if language == "de" and power else "50"
    english = f"{whole:,}.{cents}"
    if language == "de":
        return Pair(english, in_german(english))
    return Pair(english, pick(rng, (english, f"{whole}.{cents}")))


def draw_number(rng: Random, kind: str, low: int, high: int, language: str) -> Pair:
    """Choose a number written in digits: digits, decimal, number, large, short or money."""
    if kind == "number":
        return Pair(*[f"{between(rng, low, high)}"] * 2)
    if kind == "decimal":
        number = f"{between(rng, low, high)}.{between(rng, 1, 9)}" + ("5" if rng.random() < 0.15 else "")
        return Pair(number, in_german(number) if language == "de" else number)
    if kind == "digits":
        power = between(rng, low, high)
        exact = between(rng, 10**power, 10 ** (power + 1) - 1)
        number = f"{pick(rng, (exact, draw_value(rng, power, power))):,}"
        plain = len(number) == 5 and rng.random() < 0.2
        return Pair(number, number.replace(",", "") if plain else in_german(number))
    short = {"short": 1.0, "money": 0.4}.get(kind, 0.0)
    value = draw_value(rng, low, high) if language == "zh" else draw_large(rng, low, high)
    return write_value(rng, value, language, short)


def write_value(rng: Random, value: int, language: str, short: float) -> Pair:
    """Write a large value, a share of the English ones short; small whole numbers of a unit perhaps in words."""
    english, other = write_english(rng, value, short), WRITERS[language](rng, value)
    found = re.fullmatch(r"(\d+) (\w+en)", other)
    if found and int(found[1]) <= 12 and rng.random() < 0.5:
        other = f"{german_words(int(found[1]))} {found[2]}"
        if not short and rng.random() < 0.5:  # a sum may begin with a sign: £2 trillion
            english = re.sub(r"^\d+(?= )", english_words(int(found[1])), english)
    return Pair(english, other)


def plain_value(value: int, language: str) -> Pair:
    """Write a value in the same form, whatever the other values of the sentence are."""
    english = in_units(value, UNITS)
    if language == "de":
        return Pair(english, in_german(in_units(value, GERMAN_UNITS)))
    return Pair(english, in_units(value, CHINESE_UNITS, ""))


def draw_plain(rng: Random, kind: str, language: str) -> Pair:
    """Choose a year, a date, a floor, a small number or a word."""
    value = between(rng, *SPANS.get(kind, (2, 12)))
    ending = "th" if 10 < value < 20 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    if kind in WORDS[language]:
        return pick(rng, WORDS[language][kind])
    if kind in ("date", "day"):
        return draw_date(rng, kind, language)
    if kind == "decade":
        return Pair(f"{value}0", f"{value}0" if language == "de" else f"{value % 10}0")
    if kind in ("century", "floor"):
        written = f"{value}" if language == "de" or rng.random() < 0.7 else chinese_words(value)
        return Pair(f"{value}{ending}", written)
    if kind == "mixed":
        chinese = f"{'两' if value == 2 else chinese_words(value)}个半"
        german = "anderthalb" if value == 1 else f"{german_words(value)}einhalb"
        return Pair(f"{english_words(value)} and a half", german if language == "de" else chinese)
    if kind == "small":
        chinese = "两" if value == 2 else chinese_words(value)
        return Pair(english_words(value), german_words(value) if language == "de" else chinese)
    return Pair(f"{value}", f"{value}")


def draw_date(rng: Random, kind: str, language: str) -> Pair:
    """Choose a date, with the year or without."""
    month, day, year = between(rng, 1, 12), between(rng, 1, 28), between(rng, 1950, 2026)
    name, later = MONTHS[month - 1], f", {year}" if kind == "date" else ""
    english = pick(rng, (f"{name} {day}{later}", f"{name} {day}{later}", f"{day} {name}{later}".replace(",", "")))
    if language == "de":
        return Pair(english, f"{day}. {GERMAN_MONTHS[month - 1]}{later}".replace(",", ""))
    return Pair(english, (f"{year}年" if later else "") + f"{month}月{day}日")


CLOCKS = {"de": clock_german, "zh": clock_chinese}
WRITERS = {"de": write_german, "zh": write_chinese}
WORDS = {"de": GERMAN_WORDS, "zh": CHINESE_WORDS}
TEMPLATES = {"de": (GERMAN_PHRASES, GERMAN_SENTENCES), "zh": (CHINESE_PHRASES, CHINESE_SENTENCES)}


def draw(rng: Random, kind: str, span: tuple[str, str], language: str) -> Pair:
    """Fill one slot."""
    low, high = (int(end) for end in span) if span[0] else {"percent": (2, 95), "words": (2, 5)}.get(kind, (0, 0))
    if kind == "price":
        return draw_price(rng, low, high, language)
    if kind == "percent":
        return draw_percent(rng, low, high, language)
    if kind == "words":
        return draw_words(rng, low, high, language)
    if kind in ("clock", "hours", "frost"):
        return {"clock": draw_clock_pair, "hours": draw_hours, "frost": draw_frost}[kind](rng, language)
    return draw_number(rng, kind, low, high, language) if span[0] else draw_plain(rng, kind, language)


def fill(rng: Random, template: Pair, language: str) -> Pair:
    """Fill all slots of a template, all its sums in one currency, a sentence's first letter in upper case."""
    filled: dict[str, Pair] = {}
    coin = pick(rng, COINS[language])
    for kind, second, *span in SLOT.findall(template.en):
        if kind == "low":
            low, high = int(span[0]), int(span[1])
            value = draw_large(rng, low, high) if low >= 6 and language == "de" else draw_value(rng, low, high)
            step = 10 ** max(len(str(value)) - 2, 0)
            larger = (value * between(rng, 120, 400) // 100 // step + 1) * step
            larger += step if str(larger).strip("0") == "1" else 0  # one million would be singular in German
            filled["low"], filled["high"] = (plain_value(each, language) for each in (value, larger))
        elif kind != "high":
            made = draw(rng, kind, (span[0], span[1]), language)
            filled[kind + second] = in_coins(made, coin) if kind in ("money", "price") else made
    if any(filled[name] == filled.get(name + "2") for name in filled):
        return fill(rng, template, language)
    english = SLOT.sub(lambda slot: filled[slot[1] + slot[2]].en, template.en)
    other = SLOT.sub(lambda slot: filled[slot[1] + slot[2]].other, template.other)
    if len(set(re.findall("%|percent", english))) > 1 or len(set(re.findall("%|Prozent|百分之", other))) > 1:
        return fill(rng, template, language)
    english = re.sub(r"\ba (?=eight|eleven)", "an ", english.replace(".m..", ".m."))
    if english.endswith((".", "?")) and template.en.endswith((".", "?")):
        english, other = (side[0].upper() + side[1:] for side in (english, other))
    if language == "zh" and rng.random() < WIDE_SHARE and not re.search(r"\d,\d", other):
        other = re.sub(r"-?[0-9](?:[0-9.:%]*[0-9%])?", lambda found: widen(found[0]), other)
    return Pair(english, other)


def in_coins(amount: Pair, coin: Pair) -> Pair:
    """Write an amount as a sum; a German unit in full is followed by no sign: 3 Millionen Euro, 3 Mio. €."""
    other = coin.other.format(amount.other)
    return Pair(coin.en.format(amount.en), re.sub(r"(?<=en )[$€£]$", lambda sign: SIGNS[sign[0]], other))


def widen(text: str) -> str:
    """Write ASCII characters in their full width: １２３．５％."""
    return "".join(chr(ord(character) + 0xFEE0) for character in text)


def main(folder: Path) -> None:
    """Write the pairs."""
    for language, name in (("de", "german"), ("zh", "chinese")):
        rng, made = Random(SEEDS[language]), dict[Pair, None]()
        phrases, sentences = TEMPLATES[language]
        while len(made) < PAIRS[language]:
            templates = phrases if rng.random() < PHRASE_SHARE else sentences
            made[fill(rng, pick(rng, templates), language)] = None
        write(folder, f"{name}-figures", ("en", language), made)


if __name__ == "__main__":
    run(main, __doc__)
