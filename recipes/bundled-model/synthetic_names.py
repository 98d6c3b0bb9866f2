"""Write synthetic sentence pairs that teach names: places, people, companies, organisations, days.

Every pair fills a template with the same names in both languages, each written the way its language writes it. The
output depends on nothing outside this folder. All that the sentences tell is made up.

Usage: python3 synthetic_names.py OUT    writes german-names.en, german-names.de, chinese-names.en and chinese-names.zh
"""

# ruff: noqa: E501 - a template reads best on one line

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from synthetic import between, pick, run, write

PAIRS = {"german": 25_000, "chinese": 45_000}
SEEDS = {"german": 20_000, "chinese": 30_000}
PHRASE_SHARE = 0.10  # of the pairs: bare names and short phrases


class Name(NamedTuple):
    """The same name, or the same text with slots for names, in three languages.

    A German name that takes an article begins with it; "pl" stands for the article of a plural. A slash separates
    ways to write the same name.
    """

    en: str
    de: str
    zh: str


def glossary(text: str) -> list[Name]:
    """Read "English=German=Chinese" entries, or "English=Chinese" where the German name is the English one."""
    entries = [entry.strip().split("=") for entry in re.split(r"[,\n]", text) if entry.strip()]
    return [Name(entry[0], entry[-2], entry[-1]) for entry in entries]


def templates(text: str) -> list[Name]:
    """Read "English | German | Chinese" entries, or "English | Chinese", one a line."""
    entries = [re.split(r"\s*\|\s*", line) for line in text.splitlines() if line]
    return [Name(entry[0], entry[1] if len(entry) == 3 else "", entry[-1]) for entry in entries]


# The names.

NAMES = {
    "country": glossary("""
        China=中国, Japan=日本, South Korea=Südkorea=韩国, North Korea=Nordkorea=朝鲜, India=Indien=印度, Pakistan=巴基斯坦, Indonesia=Indonesien=印度尼西亚/印尼, Vietnam=越南, Thailand=泰国
        Malaysia=马来西亚, Singapore=Singapur=新加坡, Cambodia=Kambodscha=柬埔寨, Laos=老挝, Myanmar=缅甸, Bangladesh=Bangladesch=孟加拉国, Nepal=尼泊尔, Bhutan=不丹, Sri Lanka=斯里兰卡, Brunei=文莱
        East Timor=Osttimor=东帝汶, Mongolia=die Mongolei=蒙古国, Kazakhstan=Kasachstan=哈萨克斯坦, Uzbekistan=Usbekistan=乌兹别克斯坦, Kyrgyzstan=Kirgisistan=吉尔吉斯斯坦
        Tajikistan=Tadschikistan=塔吉克斯坦, Turkmenistan=土库曼斯坦, Afghanistan=阿富汗, Iran=der Iran=伊朗, Iraq=der Irak=伊拉克, Syria=Syrien=叙利亚, Lebanon=der Libanon=黎巴嫩
        Israel=以色列, Jordan=Jordanien=约旦, Saudi Arabia=Saudi-Arabien=沙特阿拉伯/沙特, Yemen=der Jemen=也门, Oman=阿曼
        the United Arab Emirates=pl Vereinigten Arabischen Emirate=阿拉伯联合酋长国/阿联酋, Qatar=Katar=卡塔尔, Kuwait=科威特, Bahrain=巴林, Turkey=die Türkei=土耳其, Georgia=Georgien=格鲁吉亚
        Armenia=Armenien=亚美尼亚, Azerbaijan=Aserbaidschan=阿塞拜疆, Cyprus=Zypern=塞浦路斯, Russia=Russland=俄罗斯, Ukraine=die Ukraine=乌克兰, Belarus=白俄罗斯
        Moldova=die Republik Moldau=摩尔多瓦, Estonia=Estland=爱沙尼亚, Latvia=Lettland=拉脱维亚, Lithuania=Litauen=立陶宛, Poland=Polen=波兰
        the Czech Republic=Tschechien/die Tschechische Republik=捷克, Slovakia=die Slowakei=斯洛伐克, Hungary=Ungarn=匈牙利, Romania=Rumänien=罗马尼亚, Bulgaria=Bulgarien=保加利亚
        Serbia=Serbien=塞尔维亚, Croatia=Kroatien=克罗地亚, Slovenia=Slowenien=斯洛文尼亚, Bosnia and Herzegovina=Bosnien und Herzegowina=波斯尼亚和黑塞哥维那/波黑, Montenegro=黑山
        North Macedonia=Nordmazedonien=北马其顿, Albania=Albanien=阿尔巴尼亚, Greece=Griechenland=希腊, Germany=Deutschland=德国, Austria=Österreich=奥地利, Switzerland=die Schweiz=瑞士
        Liechtenstein=列支敦士登, France=Frankreich=法国, Italy=Italien=意大利, Spain=Spanien=西班牙, Portugal=葡萄牙, Andorra=安道尔, Monaco=摩纳哥, San Marino=圣马力诺, Malta=马耳他
        Belgium=Belgien=比利时, the Netherlands=pl Niederlande=荷兰, Luxembourg=Luxemburg=卢森堡, Great Britain=Großbritannien=英国, the United Kingdom=das Vereinigte Königreich=英国
        Ireland=Irland=爱尔兰, Iceland=Island=冰岛, Denmark=Dänemark=丹麦, Norway=Norwegen=挪威, Sweden=Schweden=瑞典, Finland=Finnland=芬兰
        the United States=pl USA/pl Vereinigten Staaten=美国, the US=pl USA=美国, Canada=Kanada=加拿大, Mexico=Mexiko=墨西哥, Guatemala=危地马拉, Belize=伯利兹, Honduras=洪都拉斯
        El Salvador=萨尔瓦多, Nicaragua=尼加拉瓜, Costa Rica=哥斯达黎加, Panama=巴拿马, Cuba=Kuba=古巴, Jamaica=Jamaika=牙买加, Haiti=海地
        the Dominican Republic=die Dominikanische Republik=多米尼加共和国/多米尼加, Barbados=巴巴多斯, Trinidad and Tobago=Trinidad und Tobago=特立尼达和多巴哥, Grenada=格林纳达
        Saint Lucia=St. Lucia=圣卢西亚, Colombia=Kolumbien=哥伦比亚, Venezuela=委内瑞拉, Ecuador=厄瓜多尔, Peru=秘鲁, Bolivia=Bolivien=玻利维亚, Brazil=Brasilien=巴西, Paraguay=巴拉圭
        Uruguay=乌拉圭, Argentina=Argentinien=阿根廷, Chile=智利, Guyana=圭亚那, Suriname=Surinam=苏里南, Australia=Australien=澳大利亚, New Zealand=Neuseeland=新西兰, Fiji=Fidschi=斐济
        Samoa=萨摩亚, Tonga=汤加, Vanuatu=瓦努阿图, Kiribati=基里巴斯, Tuvalu=图瓦卢, Nauru=瑙鲁, Palau=帕劳, Micronesia=Mikronesien=密克罗尼西亚
        Papua New Guinea=Papua-Neuguinea=巴布亚新几内亚, Egypt=Ägypten=埃及, Libya=Libyen=利比亚, Tunisia=Tunesien=突尼斯, Algeria=Algerien=阿尔及利亚, Morocco=Marokko=摩洛哥
        Mauritania=Mauretanien=毛里塔尼亚, Mali=马里, Niger=der Niger=尼日尔, Chad=der Tschad=乍得, Sudan=der Sudan=苏丹, South Sudan=der Südsudan=南苏丹, Ethiopia=Äthiopien=埃塞俄比亚
        Eritrea=厄立特里亚, Djibouti=Dschibuti=吉布提, Somalia=索马里, Kenya=Kenia=肯尼亚, Uganda=乌干达, Rwanda=Ruanda=卢旺达, Burundi=布隆迪, Tanzania=Tansania=坦桑尼亚
        Mozambique=Mosambik=莫桑比克, Malawi=马拉维, Zambia=Sambia=赞比亚, Zimbabwe=Simbabwe=津巴布韦, Botswana=博茨瓦纳, Namibia=纳米比亚, South Africa=Südafrika=南非, Lesotho=莱索托
        Eswatini=斯威士兰, Angola=安哥拉, the Democratic Republic of the Congo=die Demokratische Republik Kongo=刚果民主共和国, Gabon=Gabun=加蓬, Cameroon=Kamerun=喀麦隆
        the Central African Republic=die Zentralafrikanische Republik=中非共和国, Nigeria=尼日利亚, Benin=贝宁, Togo=多哥, Ghana=加纳, Ivory Coast=die Elfenbeinküste=科特迪瓦, Liberia=利比里亚
        Sierra Leone=塞拉利昂, Guinea=几内亚, Guinea-Bissau=几内亚比绍, Senegal=der Senegal=塞内加尔, Gambia=冈比亚, Burkina Faso=布基纳法索, Cape Verde=Kap Verde=佛得角
        Equatorial Guinea=Äquatorialguinea=赤道几内亚, Kosovo=der Kosovo=科索沃, Palestine=Palästina=巴勒斯坦, the Republic of the Congo=die Republik Kongo=刚果共和国, Dominica=多米尼克
        Antigua and Barbuda=Antigua und Barbuda=安提瓜和巴布达, Sao Tome and Principe=São Tomé und Príncipe=圣多美和普林西比, Saint Kitts and Nevis=St. Kitts und Nevis=圣基茨和尼维斯
        Madagascar=Madagaskar=马达加斯加, Mauritius=毛里求斯
    """),
    "archipelago": glossary("""
        the Philippines=pl Philippinen=菲律宾, the Maldives=pl Malediven=马尔代夫, the Bahamas=pl Bahamas=巴哈马, the Seychelles=pl Seychellen=塞舌尔, the Comoros=pl Komoren=科摩罗
        the Canary Islands=pl Kanarischen Inseln=加那利群岛, the Azores=pl Azoren=亚速尔群岛, the Solomon Islands=pl Salomonen=所罗门群岛, the Marshall Islands=pl Marshallinseln=马绍尔群岛
    """),
    "adjective": glossary("""
        Chinese=chinesisch=中国, Japanese=japanisch=日本, South Korean=südkoreanisch=韩国, Indian=indisch=印度, Pakistani=pakistanisch=巴基斯坦, Indonesian=indonesisch=印度尼西亚
        Vietnamese=vietnamesisch=越南, Thai=thailändisch=泰国, Mongolian=mongolisch=蒙古国, Kazakh=kasachisch=哈萨克斯坦, Afghan=afghanisch=阿富汗, Iranian=iranisch=伊朗, Iraqi=irakisch=伊拉克
        Syrian=syrisch=叙利亚, Lebanese=libanesisch=黎巴嫩, Israeli=israelisch=以色列, Jordanian=jordanisch=约旦, Turkish=türkisch=土耳其, Georgian=georgisch=格鲁吉亚, Russian=russisch=俄罗斯
        Ukrainian=ukrainisch=乌克兰, Belarusian=belarussisch=白俄罗斯, Estonian=estnisch=爱沙尼亚, Latvian=lettisch=拉脱维亚, Lithuanian=litauisch=立陶宛, Polish=polnisch=波兰
        Czech=tschechisch=捷克, Slovak=slowakisch=斯洛伐克, Hungarian=ungarisch=匈牙利, Romanian=rumänisch=罗马尼亚, Bulgarian=bulgarisch=保加利亚, Serbian=serbisch=塞尔维亚
        Croatian=kroatisch=克罗地亚, Slovenian=slowenisch=斯洛文尼亚, Albanian=albanisch=阿尔巴尼亚, Greek=griechisch=希腊, German=deutsch=德国, Austrian=österreichisch=奥地利
        French=französisch=法国, Italian=italienisch=意大利, Spanish=spanisch=西班牙, Portuguese=portugiesisch=葡萄牙, Belgian=belgisch=比利时, Dutch=niederländisch=荷兰, British=britisch=英国
        Irish=irisch=爱尔兰, Icelandic=isländisch=冰岛, Danish=dänisch=丹麦, Norwegian=norwegisch=挪威, Swedish=schwedisch=瑞典, Finnish=finnisch=芬兰, American=amerikanisch=美国
        Canadian=kanadisch=加拿大, Mexican=mexikanisch=墨西哥, Cuban=kubanisch=古巴, Colombian=kolumbianisch=哥伦比亚, Peruvian=peruanisch=秘鲁, Brazilian=brasilianisch=巴西
        Argentine=argentinisch=阿根廷, Chilean=chilenisch=智利, Australian=australisch=澳大利亚, Egyptian=ägyptisch=埃及, Moroccan=marokkanisch=摩洛哥, Ethiopian=äthiopisch=埃塞俄比亚
        Kenyan=kenianisch=肯尼亚, Nigerian=nigerianisch=尼日利亚, South African=südafrikanisch=南非
    """),
    "language": glossary("""
        Chinese=Chinesisch=中文/汉语, Mandarin=普通话, Cantonese=Kantonesisch=粤语, Japanese=Japanisch=日语, Korean=Koreanisch=韩语, English=Englisch=英语, German=Deutsch=德语
        French=Französisch=法语, Spanish=Spanisch=西班牙语, Italian=Italienisch=意大利语, Portuguese=Portugiesisch=葡萄牙语, Russian=Russisch=俄语, Ukrainian=Ukrainisch=乌克兰语
        Polish=Polnisch=波兰语, Czech=Tschechisch=捷克语, Hungarian=Ungarisch=匈牙利语, Romanian=Rumänisch=罗马尼亚语, Croatian=Kroatisch=克罗地亚语, Serbian=Serbisch=塞尔维亚语
        Bulgarian=Bulgarisch=保加利亚语, Greek=Griechisch=希腊语, Latin=Latein=拉丁语, Turkish=Türkisch=土耳其语, Arabic=Arabisch=阿拉伯语, Hebrew=Hebräisch=希伯来语, Persian=Persisch=波斯语
        Hindi=印地语, Bengali=Bengalisch=孟加拉语, Thai=Thailändisch=泰语, Vietnamese=Vietnamesisch=越南语, Dutch=Niederländisch=荷兰语, Danish=Dänisch=丹麦语, Swedish=Schwedisch=瑞典语
        Norwegian=Norwegisch=挪威语, Finnish=Finnisch=芬兰语, Swahili=斯瓦希里语, Esperanto=世界语, Tibetan=Tibetisch=藏语, Mongolian=Mongolisch=蒙古语
    """),
    "world city": glossary("""
        London=伦敦, Paris=巴黎, Berlin=柏林, Madrid=马德里, Rome=Rom=罗马, Lisbon=Lissabon=里斯本, Vienna=Wien=维也纳, Bern=伯尔尼, Brussels=Brüssel=布鲁塞尔, Amsterdam=阿姆斯特丹
        The Hague=Den Haag=海牙, Copenhagen=Kopenhagen=哥本哈根, Oslo=奥斯陆, Stockholm=斯德哥尔摩, Helsinki=赫尔辛基, Reykjavik=雷克雅未克, Dublin=都柏林, Tallinn=塔林, Riga=里加
        Vilnius=维尔纽斯, Warsaw=Warschau=华沙, Krakow=Krakau=克拉科夫, Gdansk=Danzig=格但斯克, Prague=Prag=布拉格, Brno=Brünn=布尔诺, Bratislava=布拉迪斯拉发, Budapest=布达佩斯
        Bucharest=Bukarest=布加勒斯特, Sofia=索非亚, Belgrade=Belgrad=贝尔格莱德, Zagreb=萨格勒布, Split=斯普利特, Ljubljana=卢布尔雅那, Sarajevo=萨拉热窝, Skopje=斯科普里, Tirana=地拉那
        Athens=Athen=雅典, Thessaloniki=塞萨洛尼基, Istanbul=伊斯坦布尔, Ankara=安卡拉, Izmir=伊兹密尔, Moscow=Moskau=莫斯科, Saint Petersburg=Sankt Petersburg=圣彼得堡
        Vladivostok=Wladiwostok=符拉迪沃斯托克, Novosibirsk=Nowosibirsk=新西伯利亚, Kyiv=Kyjiw/Kiew=基辅, Lviv=Lwiw=利沃夫, Odesa=Odessa=敖德萨, Kharkiv=Charkiw=哈尔科夫, Minsk=明斯克
        Chisinau=Chișinău=基希讷乌, Tbilisi=Tiflis=第比利斯, Yerevan=Eriwan=埃里温, Baku=巴库, Milan=Mailand=米兰, Naples=Neapel=那不勒斯, Venice=Venedig=威尼斯, Florence=Florenz=佛罗伦萨
        Turin=都灵, Genoa=Genua=热那亚, Bologna=博洛尼亚, Verona=维罗纳, Palermo=巴勒莫, Pisa=比萨, Barcelona=巴塞罗那, Valencia=瓦伦西亚, Seville=Sevilla=塞维利亚, Granada=格拉纳达
        Bilbao=毕尔巴鄂, Porto=波尔图, Marseille=马赛, Lyon=里昂, Nice=Nizza=尼斯, Bordeaux=波尔多, Strasbourg=Straßburg=斯特拉斯堡, Toulouse=图卢兹, Nantes=南特, Lille=里尔, Cannes=戛纳
        Antwerp=Antwerpen=安特卫普, Bruges=Brügge=布鲁日, Ghent=Gent=根特, Rotterdam=鹿特丹, Utrecht=乌得勒支, Manchester=曼彻斯特, Liverpool=利物浦, Birmingham=伯明翰, Oxford=牛津
        Cambridge=剑桥, Edinburgh=爱丁堡, Glasgow=格拉斯哥, Cardiff=加的夫, Belfast=贝尔法斯特, Bristol=布里斯托尔, Leeds=利兹, Gothenburg=Göteborg=哥德堡, Malmö=马尔默, Bergen=卑尔根
        Luxembourg City=Luxemburg-Stadt=卢森堡市, Valletta=瓦莱塔, Nicosia=Nikosia=尼科西亚, New York=纽约, Washington=华盛顿, Boston=波士顿, Chicago=芝加哥, Los Angeles=洛杉矶
        San Francisco=旧金山, San Diego=圣迭戈, Seattle=西雅图, Las Vegas=拉斯维加斯, Houston=休斯敦, Dallas=达拉斯, Miami=迈阿密, Atlanta=亚特兰大, Philadelphia=费城, Detroit=底特律
        Denver=丹佛, Phoenix=菲尼克斯, New Orleans=新奥尔良, Honolulu=檀香山/火奴鲁鲁, Baltimore=巴尔的摩, Cleveland=克利夫兰, Pittsburgh=匹兹堡, Minneapolis=明尼阿波利斯, Orlando=奥兰多
        Salt Lake City=盐湖城, Toronto=多伦多, Montreal=蒙特利尔, Vancouver=温哥华, Ottawa=渥太华, Calgary=卡尔加里, Quebec City=Québec=魁北克市, Mexico City=Mexiko-Stadt=墨西哥城
        Guadalajara=瓜达拉哈拉, Cancun=Cancún=坎昆, Havana=Havanna=哈瓦那, Kingston=金斯敦, Port-au-Prince=太子港, Santo Domingo=圣多明各, San Salvador=圣萨尔瓦多, Tegucigalpa=特古西加尔巴
        Managua=马那瓜, Bogota=Bogotá=波哥大, Medellin=Medellín=麦德林, Caracas=加拉加斯, Quito=基多, Lima=利马, Cusco=库斯科, La Paz=拉巴斯, Santiago=圣地亚哥, Buenos Aires=布宜诺斯艾利斯
        Montevideo=蒙得维的亚, Asuncion=Asunción=亚松森, Brasilia=Brasília=巴西利亚, Sao Paulo=São Paulo=圣保罗, Rio de Janeiro=里约热内卢, Cairo=Kairo=开罗, Alexandria=亚历山大
        Tripoli=Tripolis=的黎波里, Tunis=突尼斯市, Algiers=Algier=阿尔及尔, Casablanca=卡萨布兰卡, Rabat=拉巴特, Marrakesh=Marrakesch=马拉喀什, Khartoum=Khartum=喀土穆
        Addis Ababa=Addis Abeba=亚的斯亚贝巴, Nairobi=内罗毕, Mombasa=蒙巴萨, Kampala=坎帕拉, Kigali=基加利, Dar es Salaam=Daressalam=达累斯萨拉姆, Lusaka=卢萨卡, Harare=哈拉雷
        Johannesburg=约翰内斯堡, Cape Town=Kapstadt=开普敦, Durban=德班, Pretoria=比勒陀利亚, Maputo=马普托, Luanda=罗安达, Kinshasa=金沙萨, Lagos=拉各斯, Abuja=阿布贾, Accra=阿克拉
        Abidjan=阿比让, Dakar=达喀尔, Bamako=巴马科, Windhoek=温得和克, Antananarivo=塔那那利佛, Mogadishu=Mogadischu=摩加迪沙, Jerusalem=耶路撒冷, Tel Aviv=特拉维夫, Haifa=海法, Beirut=贝鲁特
        Damascus=Damaskus=大马士革, Aleppo=阿勒颇, Amman=安曼, Baghdad=Bagdad=巴格达, Tehran=Teheran=德黑兰, Isfahan=伊斯法罕, Riyadh=Riad=利雅得, Mecca=Mekka=麦加, Medina=麦地那, Dubai=迪拜
        Abu Dhabi=阿布扎比, Doha=多哈, Muscat=Maskat=马斯喀特, Sanaa=萨那, Kabul=喀布尔, Islamabad=伊斯兰堡, Karachi=Karatschi=卡拉奇, Lahore=拉合尔, New Delhi=Neu-Delhi=新德里, Mumbai=孟买
        Kolkata=Kalkutta=加尔各答, Bangalore=班加罗尔, Chennai=金奈, Dhaka=达卡, Kathmandu=加德满都, Colombo=科伦坡, Thimphu=廷布, Yangon=Rangun=仰光, Bangkok=曼谷, Chiang Mai=清迈
        Phuket=普吉, Hanoi=河内, Ho Chi Minh City=Ho-Chi-Minh-Stadt=胡志明市, Phnom Penh=金边, Vientiane=万象, Kuala Lumpur=吉隆坡, Jakarta=雅加达, Manila=马尼拉, Tokyo=Tokio=东京, Osaka=大阪
        Kyoto=京都, Yokohama=横滨, Nagoya=名古屋, Sapporo=札幌, Hiroshima=广岛, Nagasaki=长崎, Fukuoka=福冈, Kobe=神户, Seoul=首尔, Busan=釜山, Incheon=仁川, Pyongyang=Pjöngjang=平壤
        Ulaanbaatar=Ulan-Bator=乌兰巴托, Astana=阿斯塔纳, Almaty=阿拉木图, Tashkent=Taschkent=塔什干, Samarkand=撒马尔罕, Bishkek=Bischkek=比什凯克, Dushanbe=Duschanbe=杜尚别, Sydney=悉尼
        Melbourne=墨尔本, Brisbane=布里斯班, Perth=珀斯, Adelaide=阿德莱德, Canberra=堪培拉, Auckland=奥克兰, Wellington=惠灵顿, Christchurch=基督城, Suva=苏瓦
    """),
    "town": glossary("""
        Munich=München=慕尼黑, Cologne=Köln=科隆, Hamburg=汉堡, Frankfurt=法兰克福, Stuttgart=斯图加特, Düsseldorf=杜塞尔多夫, Dortmund=多特蒙德, Essen=埃森, Leipzig=莱比锡, Dresden=德累斯顿
        Hanover=Hannover=汉诺威, Nuremberg=Nürnberg=纽伦堡, Bremen=不来梅, Bonn=波恩, Heidelberg=海德堡, Mannheim=曼海姆, Karlsruhe=卡尔斯鲁厄, Freiburg=弗赖堡, Augsburg=奥格斯堡
        Regensburg=雷根斯堡, Würzburg=维尔茨堡, Ulm=乌尔姆, Tübingen=图宾根, Aachen=亚琛, Münster=明斯特, Bielefeld=比勒费尔德, Wuppertal=伍珀塔尔, Bochum=波鸿, Duisburg=杜伊斯堡
        Göttingen=哥廷根, Brunswick=Braunschweig=不伦瑞克, Wolfsburg=沃尔夫斯堡, Kassel=卡塞尔, Mainz=美因茨, Wiesbaden=威斯巴登, Darmstadt=达姆施塔特, Trier=特里尔, Saarbrücken=萨尔布吕肯
        Erfurt=爱尔福特, Weimar=魏玛, Jena=耶拿, Magdeburg=马格德堡, Potsdam=波茨坦, Rostock=罗斯托克, Lübeck=吕贝克, Kiel=基尔, Schwerin=什未林, Chemnitz=开姆尼茨, Passau=帕绍, Bamberg=班贝格
        Bayreuth=拜罗伊特, Baden-Baden=巴登-巴登, Konstanz=康斯坦茨, Salzburg=萨尔茨堡, Graz=格拉茨, Linz=林茨, Innsbruck=因斯布鲁克, Zurich=Zürich=苏黎世, Geneva=Genf=日内瓦, Basel=巴塞尔
        Lausanne=洛桑, Lucerne=Luzern=卢塞恩, Davos=达沃斯, St. Gallen=圣加仑, Lugano=卢加诺, Bregenz=布雷根茨, Klagenfurt=克拉根福
    """),
    "state": glossary("""
        Bavaria=Bayern=巴伐利亚州, Baden-Württemberg=巴登-符腾堡州, Hesse=Hessen=黑森州, Saxony=Sachsen=萨克森州, Lower Saxony=Niedersachsen=下萨克森州
        Saxony-Anhalt=Sachsen-Anhalt=萨克森-安哈尔特州, Thuringia=Thüringen=图林根州, Brandenburg=勃兰登堡州, North Rhine-Westphalia=Nordrhein-Westfalen=北莱茵-威斯特法伦州
        Rhineland-Palatinate=Rheinland-Pfalz=莱茵兰-普法尔茨州, Schleswig-Holstein=石勒苏益格-荷尔斯泰因州, Mecklenburg-Western Pomerania=Mecklenburg-Vorpommern=梅克伦堡-前波美拉尼亚州
        California=Kalifornien=加利福尼亚州/加州, Texas=得克萨斯州, Florida=佛罗里达州, Ohio=俄亥俄州, Alaska=阿拉斯加州, Pennsylvania=宾夕法尼亚州, Michigan=密歇根州, Virginia=弗吉尼亚州
        Arizona=亚利桑那州, Colorado=科罗拉多州, Oregon=俄勒冈州, Utah=犹他州, Illinois=伊利诺伊州, Tyrol=Tirol=蒂罗尔州, Carinthia=Kärnten=克恩顿州, Queensland=昆士兰州
        New South Wales=新南威尔士州
    """),
    "province": glossary("""
        Sichuan=四川, Guangdong=广东, Henan=河南, Hunan=湖南, Hubei=湖北, Hebei=河北, Yunnan=云南, Guizhou=贵州, Zhejiang=浙江, Jiangsu=江苏, Jiangxi=江西, Anhui=安徽, Fujian=福建
        Shandong=山东, Shanxi=山西, Shaanxi=陕西, Gansu=甘肃, Qinghai=青海, Hainan=海南, Liaoning=辽宁, Jilin=吉林, Heilongjiang=黑龙江
    """),
    "Chinese region": glossary("""
        Tibet=西藏, Xinjiang=新疆, Inner Mongolia=die Innere Mongolei=内蒙古, Guangxi=广西, Ningxia=宁夏
    """),
    "Chinese city": glossary("""
        Beijing=Peking=北京, Shanghai=上海, Tianjin=天津, Chongqing=重庆, Guangzhou=广州, Shenzhen=深圳, Hong Kong=Hongkong=香港, Macau=澳门, Taipei=Taipeh=台北, Kaohsiung=高雄, Nanjing=南京
        Suzhou=苏州, Wuxi=无锡, Changzhou=常州, Nantong=南通, Xuzhou=徐州, Yangzhou=扬州, Zhenjiang=镇江, Lianyungang=连云港, Hangzhou=杭州, Ningbo=宁波, Wenzhou=温州, Shaoxing=绍兴
        Jiaxing=嘉兴, Jinhua=金华, Yiwu=义乌, Zhoushan=舟山, Hefei=合肥, Wuhu=芜湖, Huangshan=黄山, Bengbu=蚌埠, Fuzhou=福州, Xiamen=厦门, Quanzhou=泉州, Zhangzhou=漳州, Nanchang=南昌
        Jingdezhen=景德镇, Jiujiang=九江, Ganzhou=赣州, Jinan=济南, Qingdao=青岛, Yantai=烟台, Weihai=威海, Weifang=潍坊, Zibo=淄博, Qufu=曲阜, Linyi=临沂, Tai'an=泰安, Zhengzhou=郑州
        Luoyang=洛阳, Kaifeng=开封, Anyang=安阳, Nanyang=南阳, Xinyang=信阳, Wuhan=武汉, Yichang=宜昌, Xiangyang=襄阳, Jingzhou=荆州, Shiyan=十堰, Changsha=长沙, Zhuzhou=株洲, Xiangtan=湘潭
        Yueyang=岳阳, Zhangjiajie=张家界, Hengyang=衡阳, Foshan=佛山, Dongguan=东莞, Zhuhai=珠海, Zhongshan=中山, Huizhou=惠州, Shantou=汕头, Zhanjiang=湛江, Chaozhou=潮州, Shaoguan=韶关
        Nanning=南宁, Guilin=桂林, Liuzhou=柳州, Haikou=海口, Sanya=三亚, Chengdu=成都, Mianyang=绵阳, Leshan=乐山, Yibin=宜宾, Zigong=自贡, Guiyang=贵阳, Zunyi=遵义, Kunming=昆明, Dali=大理
        Lijiang=丽江, Lhasa=拉萨, Xi'an=西安, Xianyang=咸阳, Baoji=宝鸡, Yan'an=延安, Hanzhong=汉中, Lanzhou=兰州, Dunhuang=敦煌, Jiuquan=酒泉, Tianshui=天水, Xining=西宁, Yinchuan=银川
        Urumqi=Ürümqi=乌鲁木齐, Kashgar=Kaschgar=喀什, Turpan=吐鲁番, Shenyang=沈阳, Dalian=大连, Anshan=鞍山, Dandong=丹东, Changchun=长春, Harbin=哈尔滨, Qiqihar=齐齐哈尔, Daqing=大庆
        Mudanjiang=牡丹江, Shijiazhuang=石家庄, Tangshan=唐山, Baoding=保定, Handan=邯郸, Qinhuangdao=秦皇岛, Chengde=承德, Zhangjiakou=张家口, Taiyuan=太原, Datong=大同, Pingyao=平遥
        Hohhot=呼和浩特, Baotou=包头, Ordos=鄂尔多斯
    """),
    "water": glossary("""
        the Rhine=der Rhein=莱茵河, the Danube=die Donau=多瑙河, the Elbe=die Elbe=易北河, the Main=der Main=美因河, the Moselle=die Mosel=摩泽尔河, the Oder=die Oder=奥得河
        the Neckar=der Neckar=内卡河, the Seine=die Seine=塞纳河, the Thames=die Themse=泰晤士河, the Volga=die Wolga=伏尔加河, the Vistula=die Weichsel=维斯瓦河
        the Vltava=die Moldau=伏尔塔瓦河, the Loire=die Loire=卢瓦尔河, the Rhone=die Rhone=罗讷河, the Tiber=der Tiber=台伯河, the Po=der Po=波河, the Nile=der Nil=尼罗河
        the Congo River=der Kongo=刚果河, the Amazon=der Amazonas=亚马孙河, the Mississippi=der Mississippi=密西西比河, the Ganges=der Ganges=恒河, the Indus=der Indus=印度河
        the Mekong=der Mekong=湄公河, the Euphrates=der Euphrat=幼发拉底河, the Tigris=der Tigris=底格里斯河, the Dnieper=der Dnepr=第聂伯河, the Yangtze=der Jangtse=长江
        the Yellow River=der Gelbe Fluss=黄河, the Pearl River=der Perlfluss=珠江, the Amur=der Amur=黑龙江, Lake Constance=der Bodensee=博登湖, Lake Geneva=der Genfer See=日内瓦湖
        Lake Zurich=der Zürichsee=苏黎世湖, Lake Garda=der Gardasee=加尔达湖, Lake Baikal=der Baikalsee=贝加尔湖, Lake Victoria=der Viktoriasee=维多利亚湖
        Lake Titicaca=der Titicacasee=的的喀喀湖, the West Lake=der Westsee=西湖, the North Sea=die Nordsee=北海, the Baltic Sea=die Ostsee=波罗的海, the Mediterranean=das Mittelmeer=地中海
        the Black Sea=das Schwarze Meer=黑海, the Red Sea=das Rote Meer=红海, the Caspian Sea=das Kaspische Meer=里海, the Dead Sea=das Tote Meer=死海, the Adriatic=die Adria=亚得里亚海
        the Pacific=der Pazifik=太平洋, the Atlantic=der Atlantik=大西洋, the Indian Ocean=der Indische Ozean=印度洋, the Persian Gulf=der Persische Golf=波斯湾
        the South China Sea=das Südchinesische Meer=南海, the East China Sea=das Ostchinesische Meer=东海, the Yellow Sea=das Gelbe Meer=黄海, the Suez Canal=der Suezkanal=苏伊士运河
        the Panama Canal=der Panamakanal=巴拿马运河
    """),
    "mountain": glossary("""
        Mount Everest=der Mount Everest=珠穆朗玛峰, the Matterhorn=das Matterhorn=马特洪峰, the Zugspitze=die Zugspitze=楚格峰, Mont Blanc=der Mont Blanc=勃朗峰, Mount Fuji=der Fuji=富士山
        Kilimanjaro=der Kilimandscharo=乞力马扎罗山, Vesuvius=der Vesuv=维苏威火山, Mount Etna=der Ätna=埃特纳火山, Mount Olympus=der Olymp=奥林匹斯山, Mount Tai=der Tai Shan=泰山
        Mount Huangshan=der Huang Shan=黄山, Mount Emei=der Emei Shan=峨眉山, the Alps=pl Alpen=阿尔卑斯山, the Andes=pl Anden=安第斯山脉, the Himalayas=der Himalaya=喜马拉雅山脉
        the Pyrenees=pl Pyrenäen=比利牛斯山脉, the Carpathians=pl Karpaten=喀尔巴阡山脉, the Rocky Mountains=pl Rocky Mountains=落基山脉, the Caucasus=der Kaukasus=高加索山脉
        the Urals=der Ural=乌拉尔山脉, the Black Forest=der Schwarzwald=黑森林, the Harz=der Harz=哈茨山
    """),
    "continent": glossary("""
        Europe=Europa=欧洲, Asia=Asien=亚洲, Africa=Afrika=非洲, North America=Nordamerika=北美洲, South America=Südamerika=南美洲, Latin America=Lateinamerika=拉丁美洲
        Southeast Asia=Südostasien=东南亚, Central Asia=Zentralasien=中亚, Eastern Europe=Osteuropa=东欧, Scandinavia=Skandinavien=斯堪的纳维亚, the Middle East=der Nahe Osten=中东
        Western Europe=Westeuropa=西欧, East Africa=Ostafrika=东非, West Africa=Westafrika=西非
    """),
    "island": glossary("""
        Sicily=Sizilien=西西里岛, Sardinia=Sardinien=撒丁岛, Corsica=Korsika=科西嘉岛, Crete=Kreta=克里特岛, Rhodes=Rhodos=罗德岛, Mallorca=马略卡岛, Ibiza=伊维萨岛
        Tenerife=Teneriffa=特内里费岛, Rügen=吕根岛, Sylt=叙尔特岛, Greenland=Grönland=格陵兰岛, Hawaii=夏威夷, Bali=巴厘岛, Java=爪哇岛, Sumatra=苏门答腊岛, Hokkaido=北海道, Okinawa=冲绳
        Tasmania=Tasmanien=塔斯马尼亚, Zanzibar=Sansibar=桑给巴尔, Taiwan=台湾
    """),
    "sight": glossary("""
        the Great Wall=die Chinesische Mauer=长城, the Forbidden City=die Verbotene Stadt=故宫/紫禁城, the Summer Palace=der Sommerpalast=颐和园, the Temple of Heaven=der Himmelstempel=天坛
        the Terracotta Army=die Terrakotta-Armee=兵马俑, the Eiffel Tower=der Eiffelturm=埃菲尔铁塔, the Louvre=der Louvre=卢浮宫, the Brandenburg Gate=das Brandenburger Tor=勃兰登堡门
        Cologne Cathedral=der Kölner Dom=科隆大教堂, Neuschwanstein Castle=das Schloss Neuschwanstein=新天鹅堡, the Colosseum=das Kolosseum=斗兽场, Big Ben=der Big Ben=大本钟
        the Statue of Liberty=die Freiheitsstatue=自由女神像, the White House=das Weiße Haus=白宫, the Kremlin=der Kreml=克里姆林宫, the Taj Mahal=das Taj Mahal=泰姬陵
        the British Museum=das Britische Museum=大英博物馆, the Acropolis=die Akropolis=雅典卫城
    """),
    "leader": glossary("""
        Xi Jinping=习近平, President Xi Jinping=Präsident Xi Jinping=习近平主席, Premier Li Qiang=Ministerpräsident Li Qiang=李强总理, Foreign Minister Wang Yi=Außenminister Wang Yi=王毅外长
        Putin=普京, Vladimir Putin=Wladimir Putin=弗拉基米尔·普京, President Putin=Präsident Putin=普京总统, Sergey Lavrov=Sergej Lawrow=谢尔盖·拉夫罗夫, Macron=马克龙
        Emmanuel Macron=埃马纽埃尔·马克龙, President Macron=Präsident Macron=马克龙总统, Angela Merkel=安格拉·默克尔, Merkel=默克尔, Chancellor Merkel=Bundeskanzlerin Merkel=默克尔总理
        Olaf Scholz=奥拉夫·朔尔茨, Scholz=朔尔茨, Chancellor Scholz=Bundeskanzler Scholz=朔尔茨总理, Friedrich Merz=弗里德里希·默茨, Merz=默茨, Chancellor Merz=Bundeskanzler Merz=默茨总理
        Frank-Walter Steinmeier=弗兰克-瓦尔特·施泰因迈尔, Barack Obama=贝拉克·奥巴马, Obama=奥巴马, President Obama=Präsident Obama=奥巴马总统, Joe Biden=乔·拜登, Biden=拜登
        President Biden=Präsident Biden=拜登总统, Donald Trump=唐纳德·特朗普, Trump=特朗普, President Trump=Präsident Trump=特朗普总统, Bill Clinton=比尔·克林顿, Clinton=克林顿
        Hillary Clinton=希拉里·克林顿, Kamala Harris=卡玛拉·哈里斯, Boris Johnson=鲍里斯·约翰逊, Theresa May=特雷莎·梅, Tony Blair=托尼·布莱尔, David Cameron=戴维·卡梅伦
        Keir Starmer=基尔·斯塔默, Rishi Sunak=里希·苏纳克, King Charles=König Charles=查尔斯国王, Prince William=Prinz William=威廉王子, Justin Trudeau=贾斯廷·特鲁多, Trudeau=特鲁多
        Mark Carney=马克·卡尼, Narendra Modi=纳伦德拉·莫迪, Modi=莫迪, Prime Minister Modi=Premierminister Modi=莫迪总理, Recep Tayyip Erdogan=Recep Tayyip Erdoğan=雷杰普·塔伊普·埃尔多安
        President Erdogan=Präsident Erdoğan=埃尔多安总统, Volodymyr Zelensky=Wolodymyr Selenskyj=弗拉基米尔·泽连斯基, Zelensky=Selenskyj=泽连斯基
        President Zelensky=Präsident Selenskyj=泽连斯基总统, Viktor Orban=Viktor Orbán=欧尔班·维克托/欧尔班, Donald Tusk=唐纳德·图斯克, Giorgia Meloni=焦尔吉娅·梅洛尼
        Pedro Sanchez=Pedro Sánchez=佩德罗·桑切斯, Ursula von der Leyen=乌尔苏拉·冯德莱恩/冯德莱恩, Antonio Guterres=António Guterres=安东尼奥·古特雷斯, Guterres=Guterres=古特雷斯
        Christine Lagarde=克里斯蒂娜·拉加德, Prime Minister Kishida=Premierminister Kishida=岸田首相, Fumio Kishida=岸田文雄, Yoon Suk Yeol=尹锡悦, Moon Jae-in=文在寅
        Kim Jong Un=Kim Jong-un=金正恩, Lula da Silva=卢拉·达席尔瓦/卢拉, President Lula=Präsident Lula=卢拉总统, Cyril Ramaphosa=西里尔·拉马福萨, Benjamin Netanyahu=本雅明·内塔尼亚胡
        Lee Hsien Loong=李显龙, Anthony Albanese=安东尼·阿尔巴尼斯, Jacinda Ardern=杰辛达·阿德恩, Sanna Marin=桑娜·马林, Alexander Lukashenko=Alexander Lukaschenko=亚历山大·卢卡申科
        Ban Ki-moon=潘基文, Emperor Naruhito=Kaiser Naruhito=德仁天皇, Tedros Adhanom Ghebreyesus=谭德塞
    """),
    "historical": glossary("""
        Confucius=Konfuzius=孔子, Laozi=Laotse=老子, Sun Tzu=Sunzi=孙子, Mencius=Menzius=孟子, Zhuangzi=庄子, Qin Shi Huang=秦始皇, Genghis Khan=Dschingis Khan=成吉思汗, Kublai Khan=忽必烈
        Zheng He=郑和, Zhuge Liang=诸葛亮, Wu Zetian=武则天, Empress Dowager Cixi=Kaiserinwitwe Cixi=慈禧太后, Sun Yat-sen=孙中山, Chiang Kai-shek=蒋介石, Mao Zedong=毛泽东, Zhou Enlai=周恩来
        Deng Xiaoping=邓小平, Li Bai=李白, Du Fu=杜甫, Su Shi=苏轼, Lu Xun=鲁迅, Cao Xueqin=曹雪芹, Marco Polo=马可·波罗, Julius Caesar=Julius Cäsar=尤利乌斯·凯撒, Caesar=Cäsar=凯撒
        Cleopatra=Kleopatra=克娄巴特拉, Alexander the Great=Alexander der Große=亚历山大大帝, Charlemagne=Karl der Große=查理大帝, Frederick the Great=Friedrich der Große=腓特烈大帝
        Napoleon=拿破仑, Bismarck=俾斯麦, Abraham Lincoln=亚伯拉罕·林肯, George Washington=乔治·华盛顿, Thomas Jefferson=托马斯·杰斐逊, Benjamin Franklin=本杰明·富兰克林
        John F. Kennedy=约翰·肯尼迪, Martin Luther King=马丁·路德·金, Martin Luther=马丁·路德, Winston Churchill=温斯顿·丘吉尔, Churchill=丘吉尔, Queen Victoria=Königin Victoria=维多利亚女王
        Queen Elizabeth=Königin Elisabeth=伊丽莎白女王, Margaret Thatcher=玛格丽特·撒切尔, Charles de Gaulle=夏尔·戴高乐/戴高乐, Joan of Arc=Johanna von Orléans=圣女贞德
        Mahatma Gandhi=圣雄甘地, Nelson Mandela=纳尔逊·曼德拉, Mandela=曼德拉, Mikhail Gorbachev=Michail Gorbatschow=米哈伊尔·戈尔巴乔夫, Helmut Kohl=赫尔穆特·科尔
        Konrad Adenauer=康拉德·阿登纳, Willy Brandt=维利·勃兰特, Lenin=列宁, Karl Marx=卡尔·马克思, Marx=马克思, Friedrich Engels=弗里德里希·恩格斯, Engels=恩格斯, Ho Chi Minh=胡志明
        Catherine the Great=Katharina die Große=叶卡捷琳娜大帝, Peter the Great=Peter der Große=彼得大帝, Christopher Columbus=Christoph Kolumbus=克里斯托弗·哥伦布, Columbus=Kolumbus=哥伦布
        Vasco da Gama=瓦斯科·达伽马, Ferdinand Magellan=费迪南德·麦哲伦, Maria Theresa=Maria Theresia=玛丽亚·特蕾莎, Yuri Gagarin=Juri Gagarin=尤里·加加林, Neil Armstrong=尼尔·阿姆斯特朗
        Mother Teresa=Mutter Teresa=特蕾莎修女, Anne Frank=安妮·弗兰克, Florence Nightingale=弗洛伦斯·南丁格尔, Simon Bolivar=Simón Bolívar=西蒙·玻利瓦尔, Che Guevara=切·格瓦拉
        Pope Francis=Papst Franziskus=教皇方济各
    """),
    "thinker": glossary("""
        Albert Einstein=阿尔伯特·爱因斯坦, Einstein=爱因斯坦, Isaac Newton=艾萨克·牛顿, Newton=牛顿, Galileo Galilei=伽利略·伽利莱/伽利略, Charles Darwin=查尔斯·达尔文, Darwin=达尔文
        Nicolaus Copernicus=Nikolaus Kopernikus=尼古拉·哥白尼, Copernicus=Kopernikus=哥白尼, Johannes Kepler=约翰内斯·开普勒, Kepler=开普勒, Marie Curie=玛丽·居里/居里夫人
        Max Planck=马克斯·普朗克, Planck=普朗克, Werner Heisenberg=维尔纳·海森堡, Stephen Hawking=斯蒂芬·霍金, Hawking=霍金, Nikola Tesla=尼古拉·特斯拉, Thomas Edison=托马斯·爱迪生
        Edison=爱迪生, Alfred Nobel=阿尔弗雷德·诺贝尔, Nobel=诺贝尔, Louis Pasteur=路易·巴斯德, Robert Koch=罗伯特·科赫, Alexander von Humboldt=亚历山大·冯·洪堡
        Carl Friedrich Gauss=Carl Friedrich Gauß=卡尔·弗里德里希·高斯, Leonhard Euler=莱昂哈德·欧拉, Archimedes=阿基米德, Pythagoras=毕达哥拉斯, Euclid=Euklid=欧几里得
        Socrates=Sokrates=苏格拉底, Plato=Platon=柏拉图, Aristotle=Aristoteles=亚里士多德, Immanuel Kant=伊曼努尔·康德, Kant=康德, Georg Wilhelm Friedrich Hegel=格奥尔格·威廉·弗里德里希·黑格尔
        Friedrich Nietzsche=弗里德里希·尼采, Nietzsche=尼采, Sigmund Freud=西格蒙德·弗洛伊德, Freud=弗洛伊德, Rene Descartes=René Descartes=勒内·笛卡尔, Descartes=Descartes=笛卡尔
        Voltaire=伏尔泰, Rousseau=卢梭, Adam Smith=亚当·斯密, Alan Turing=艾伦·图灵, Turing=图灵, Tu Youyou=屠呦呦, Yuan Longping=袁隆平, Qian Xuesen=钱学森, Zhang Heng=张衡
        Zhong Nanshan=钟南山, Chen-Ning Yang=杨振宁, Johannes Gutenberg=约翰内斯·古腾堡
    """),
    "writer": glossary("""
        Goethe=歌德, Johann Wolfgang von Goethe=约翰·沃尔夫冈·冯·歌德, Friedrich Schiller=弗里德里希·席勒, Schiller=席勒, Heinrich Heine=海因里希·海涅, Thomas Mann=托马斯·曼
        Hermann Hesse=赫尔曼·黑塞, Franz Kafka=弗朗茨·卡夫卡, Kafka=卡夫卡, Bertolt Brecht=贝托尔特·布莱希特, Günter Grass=君特·格拉斯, Stefan Zweig=斯特凡·茨威格, Michael Ende=米切尔·恩德
        William Shakespeare=威廉·莎士比亚, Shakespeare=莎士比亚, Charles Dickens=查尔斯·狄更斯, Dickens=狄更斯, Jane Austen=简·奥斯汀, Agatha Christie=阿加莎·克里斯蒂
        George Orwell=乔治·奥威尔, Oscar Wilde=奥斯卡·王尔德, Virginia Woolf=弗吉尼亚·伍尔夫, Mark Twain=马克·吐温, Ernest Hemingway=欧内斯特·海明威, Hemingway=海明威
        Edgar Allan Poe=埃德加·爱伦·坡, Leo Tolstoy=Leo Tolstoi=列夫·托尔斯泰, Tolstoy=Tolstoi=托尔斯泰, Fyodor Dostoevsky=Fjodor Dostojewski=费奥多尔·陀思妥耶夫斯基
        Anton Chekhov=Anton Tschechow=安东·契诃夫, Alexander Pushkin=Alexander Puschkin=亚历山大·普希金, Victor Hugo=维克多·雨果, Hugo=雨果
        Honore de Balzac=Honoré de Balzac=奥诺雷·德·巴尔扎克, Jules Verne=儒勒·凡尔纳, Albert Camus=阿尔贝·加缪, Dante=但丁, Homer=荷马, Miguel de Cervantes=米格尔·德·塞万提斯
        Gabriel Garcia Marquez=Gabriel García Márquez=加夫列尔·加西亚·马尔克斯, Hans Christian Andersen=汉斯·克里斯蒂安·安徒生/安徒生, Astrid Lindgren=阿斯特丽德·林格伦
        Haruki Murakami=村上春树, Rabindranath Tagore=罗宾德拉纳特·泰戈尔, Mo Yan=莫言, Liu Cixin=刘慈欣, Yu Hua=余华, Lao She=老舍, Ba Jin=巴金, Shen Congwen=沈从文, Louis Cha=金庸
        Eileen Chang=张爱玲, J. K. Rowling=J. K. 罗琳, Stephen King=斯蒂芬·金
    """),
    "classical": glossary("""
        Ludwig van Beethoven=路德维希·凡·贝多芬/贝多芬, Beethoven=贝多芬, Wolfgang Amadeus Mozart=沃尔夫冈·阿马德乌斯·莫扎特, Mozart=莫扎特, Johann Sebastian Bach=约翰·塞巴斯蒂安·巴赫
        Bach=巴赫, Richard Wagner=理查德·瓦格纳, Johannes Brahms=约翰内斯·勃拉姆斯, Robert Schumann=罗伯特·舒曼, Franz Schubert=弗朗茨·舒伯特, Schubert=舒伯特, Joseph Haydn=约瑟夫·海顿
        Frederic Chopin=Frédéric Chopin=弗雷德里克·肖邦, Chopin=Chopin=肖邦, Franz Liszt=弗朗茨·李斯特, Pyotr Tchaikovsky=Pjotr Tschaikowski=彼得·柴可夫斯基
        Tchaikovsky=Tschaikowski=柴可夫斯基, Antonio Vivaldi=安东尼奥·维瓦尔第, Giuseppe Verdi=朱塞佩·威尔第, Johann Strauss=Johann Strauß=约翰·施特劳斯
    """),
    "popular": glossary("""
        Lang Lang=郎朗, Yo-Yo Ma=马友友, Jay Chou=周杰伦, Teresa Teng=邓丽君, Michael Jackson=迈克尔·杰克逊, Bob Dylan=鲍勃·迪伦, Elvis Presley=埃尔维斯·普雷斯利/猫王, Madonna=麦当娜
        Taylor Swift=泰勒·斯威夫特, Adele=阿黛尔, Paul McCartney=保罗·麦卡特尼, John Lennon=约翰·列侬, Elton John=埃尔顿·约翰, Herbert von Karajan=赫伯特·冯·卡拉扬
        Luciano Pavarotti=鲁契亚诺·帕瓦罗蒂
    """),
    "artist": glossary("""
        Leonardo da Vinci=列奥纳多·达·芬奇/达·芬奇, Michelangelo=米开朗基罗, Raphael=Raffael=拉斐尔, Rembrandt=伦勃朗, Vincent van Gogh=文森特·梵高/梵高, Pablo Picasso=巴勃罗·毕加索
        Picasso=毕加索, Claude Monet=克劳德·莫奈, Monet=莫奈, Paul Cezanne=Paul Cézanne=保罗·塞尚, Albrecht Dürer=阿尔布雷希特·丢勒, Gustav Klimt=古斯塔夫·克里姆特, Frida Kahlo=弗里达·卡罗
        Salvador Dali=Salvador Dalí=萨尔瓦多·达利, Andy Warhol=安迪·沃霍尔, Qi Baishi=齐白石, Xu Beihong=徐悲鸿, Zhang Daqian=张大千, Zhang Yimou=张艺谋, Jackie Chan=成龙, Bruce Lee=李小龙
        Gong Li=巩俐, Ang Lee=李安, Steven Spielberg=史蒂文·斯皮尔伯格, Alfred Hitchcock=阿尔弗雷德·希区柯克, Charlie Chaplin=查理·卓别林, Chaplin=卓别林, Audrey Hepburn=奥黛丽·赫本
        Marilyn Monroe=玛丽莲·梦露, Tom Hanks=汤姆·汉克斯, Leonardo DiCaprio=莱昂纳多·迪卡普里奥, Walt Disney=沃尔特·迪士尼, Sophia Loren=索菲娅·罗兰
    """),
    "athlete": glossary("""
        Yao Ming=姚明, Liu Xiang=刘翔, Li Na=李娜, Lang Ping=郎平, Sun Yingsha=孙颖莎, Ma Long=马龙, Lin Dan=林丹, Eileen Gu=谷爱凌, Zheng Qinwen=郑钦文, Michael Jordan=迈克尔·乔丹
        Kobe Bryant=科比·布莱恩特/科比, LeBron James=勒布朗·詹姆斯, James=詹姆斯, Stephen Curry=斯蒂芬·库里, Curry=库里, Lionel Messi=利昂内尔·梅西, Messi=梅西
        Cristiano Ronaldo=克里斯蒂亚诺·罗纳尔多/C罗, Neymar=内马尔, Pele=Pelé=贝利, Diego Maradona=迭戈·马拉多纳, Maradona=马拉多纳, David Beckham=大卫·贝克汉姆, Beckham=贝克汉姆
        Zinedine Zidane=齐内丁·齐达内, Zidane=齐达内, Kylian Mbappe=Kylian Mbappé=基利安·姆巴佩, Mbappe=Mbappé=姆巴佩, Luka Modric=Luka Modrić=卢卡·莫德里奇, Modric=Modrić=莫德里奇
        Robert Lewandowski=罗伯特·莱万多夫斯基, Franz Beckenbauer=弗朗茨·贝肯鲍尔, Manuel Neuer=曼努埃尔·诺伊尔, Toni Kroos=托尼·克罗斯, Jürgen Klopp=尤尔根·克洛普, Roger Federer=罗杰·费德勒
        Federer=费德勒, Rafael Nadal=拉斐尔·纳达尔, Nadal=纳达尔, Novak Djokovic=诺瓦克·德约科维奇, Djokovic=德约科维奇, Boris Becker=鲍里斯·贝克尔, Steffi Graf=施特菲·格拉芙
        Serena Williams=塞雷娜·威廉姆斯, Dirk Nowitzki=德克·诺维茨基, Nowitzki=诺维茨基, Michael Schumacher=迈克尔·舒马赫, Schumacher=舒马赫, Sebastian Vettel=塞巴斯蒂安·维特尔
        Lewis Hamilton=刘易斯·汉密尔顿, Usain Bolt=尤塞恩·博尔特, Bolt=博尔特, Michael Phelps=迈克尔·菲尔普斯, Phelps=菲尔普斯, Simone Biles=西蒙·拜尔斯, Muhammad Ali=穆罕默德·阿里/拳王阿里
        Mike Tyson=迈克·泰森, Tyson=泰森, Tiger Woods=泰格·伍兹, Garry Kasparov=Garri Kasparow=加里·卡斯帕罗夫
    """),
    "founder": glossary("""
        Jack Ma=马云, Pony Ma=马化腾, Ren Zhengfei=任正非, Lei Jun=雷军, Wang Chuanfu=王传福, Li Ka-shing=李嘉诚, Robin Li=李彦宏, Steve Jobs=史蒂夫·乔布斯, Jobs=乔布斯, Tim Cook=蒂姆·库克
        Cook=库克, Bill Gates=比尔·盖茨, Elon Musk=埃隆·马斯克, Musk=马斯克, Jeff Bezos=杰夫·贝索斯, Bezos=贝索斯, Mark Zuckerberg=马克·扎克伯格, Zuckerberg=扎克伯格
        Warren Buffett=沃伦·巴菲特, Buffett=巴菲特, Jensen Huang=黄仁勋, Sam Altman=萨姆·奥尔特曼, Satya Nadella=萨蒂亚·纳德拉, Henry Ford=亨利·福特, Carl Benz=卡尔·本茨, Masayoshi Son=孙正义
        Sundar Pichai=桑达尔·皮查伊
    """),
    "company": glossary("""
        Apple=苹果公司/苹果, Microsoft=微软, Google=谷歌, Amazon=亚马逊, Facebook=脸书, Meta=Meta公司, Intel=英特尔, AMD=超威半导体, Nvidia=英伟达, IBM=IBM, Oracle=甲骨文公司/甲骨文
        Cisco=思科, Dell=戴尔, Qualcomm=高通, Tesla=特斯拉, Boeing=波音, Airbus=空中客车/空客, Toyota=丰田, Honda=本田, Nissan=日产, Mazda=马自达, Mitsubishi=三菱, Sony=索尼, Panasonic=松下
        Toshiba=东芝, Hitachi=日立, Canon=佳能, Nintendo=任天堂, Samsung=三星, LG=LG, Hyundai=现代汽车, Volkswagen=大众汽车/大众, Audi=奥迪, Porsche=保时捷, Mercedes-Benz=梅赛德斯-奔驰/奔驰
        BMW=宝马, Opel=欧宝, Siemens=西门子, Bosch=博世, SAP=思爱普, BASF=巴斯夫, Bayer=拜耳, Continental=大陆集团, Adidas=阿迪达斯, Puma=彪马, Lufthansa=汉莎航空, Allianz=安联
        Deutsche Bank=德意志银行, Commerzbank=德国商业银行, Deutsche Telekom=德国电信, Aldi=阿尔迪, Henkel=汉高, ThyssenKrupp=Thyssenkrupp=蒂森克虏伯, Nestle=Nestlé=雀巢, Novartis=诺华
        Roche=罗氏, UBS=瑞银集团/瑞银, Credit Suisse=瑞士信贷, ABB=ABB, Rolex=劳力士, Swatch=斯沃琪, Philips=飞利浦, Shell=壳牌, Unilever=联合利华, ING=荷兰国际集团, IKEA=宜家, Volvo=沃尔沃
        Ericsson=爱立信, H&M=H&M, Spotify=Spotify, Nokia=诺基亚, Lego=乐高, Carlsberg=嘉士伯, Maersk=马士基, Renault=雷诺, Peugeot=标致, Michelin=米其林, Danone=达能, Carrefour=家乐福
        L'Oréal=欧莱雅, Chanel=香奈儿, Louis Vuitton=路易威登, TotalEnergies=道达尔能源, Fiat=菲亚特, Ferrari=法拉利, Gucci=古驰, Prada=普拉达, Zara=飒拉, Santander=桑坦德银行, BP=英国石油公司
        HSBC=汇丰银行/汇丰, Barclays=巴克莱银行, Vodafone=沃达丰, Rolls-Royce=劳斯莱斯, AstraZeneca=阿斯利康, Gazprom=俄罗斯天然气工业股份公司, Coca-Cola=可口可乐, Pepsi=百事可乐
        McDonald's=麦当劳, Starbucks=星巴克, Nike=耐克, Walmart=沃尔玛, Disney=迪士尼, Netflix=奈飞, Ford=福特, General Motors=通用汽车, General Electric=通用电气, Pfizer=辉瑞
        Johnson & Johnson=强生, Goldman Sachs=高盛, JPMorgan=摩根大通, Morgan Stanley=摩根士丹利, Citigroup=花旗集团, Visa=维萨, Uber=优步, Airbnb=爱彼迎, Twitter=推特, LinkedIn=领英
        Lockheed Martin=洛克希德·马丁, Caterpillar=卡特彼勒, FedEx=联邦快递, Huawei=华为, Xiaomi=小米, Tencent=腾讯, Alibaba=阿里巴巴, Baidu=百度, ByteDance=字节跳动, JD.com=京东, Meituan=美团
        Pinduoduo=拼多多, Didi=滴滴出行/滴滴, NetEase=网易, Lenovo=联想, ZTE=中兴通讯/中兴, Oppo=OPPO, Vivo=vivo, Haier=海尔, Midea=美的, Gree=格力, Hisense=海信, TCL=TCL, BYD=比亚迪
        Geely=吉利, Chery=奇瑞, Great Wall Motor=长城汽车, SAIC Motor=上汽集团, NIO=蔚来, CATL=宁德时代, PetroChina=中国石油, Sinopec=中国石化, China Mobile=中国移动, China Unicom=中国联通
        Air China=中国国际航空, Bank of China=中国银行, ICBC=中国工商银行, Vanke=万科, Foxconn=富士康, TSMC=台积电, Tsingtao=青岛啤酒, Moutai=茅台, DJI=大疆, SMIC=中芯国际, Tata=塔塔集团
        Infosys=印孚瑟斯, SoftBank=软银, OpenAI=OpenAI, SpaceX=SpaceX, Red Bull=红牛
    """),
    "product": glossary("""
        WeChat=微信, Weibo=微博, Alipay=支付宝, Taobao=淘宝, TikTok=TikTok, Douyin=抖音, Windows=Windows, Android=安卓, YouTube=YouTube, Instagram=Instagram, WhatsApp=WhatsApp
        Wikipedia=维基百科, Zhihu=知乎, Bilibili=哔哩哔哩, Tmall=天猫, Google Maps=谷歌地图, Word=Word, Photoshop=Photoshop, Skype=Skype, Telegram=Telegram, Douban=豆瓣, DeepSeek=DeepSeek
        ChatGPT=ChatGPT
    """),
    "media": glossary("""
        the New York Times=die New York Times=《纽约时报》, the Washington Post=die Washington Post=《华盛顿邮报》, the Wall Street Journal=das Wall Street Journal=《华尔街日报》
        the Financial Times=die Financial Times=《金融时报》, the Guardian=der Guardian=《卫报》, the Economist=der Economist=《经济学人》, Le Monde=Le Monde=《世界报》
        Der Spiegel=der Spiegel=《明镜》周刊, the Süddeutsche Zeitung=die Süddeutsche Zeitung=《南德意志报》
        the Frankfurter Allgemeine Zeitung=die Frankfurter Allgemeine Zeitung=《法兰克福汇报》, the Neue Zürcher Zeitung=die Neue Zürcher Zeitung=《新苏黎世报》
        the People's Daily=die Volkszeitung=《人民日报》, the Global Times=die Global Times=《环球时报》, China Daily=China Daily=《中国日报》
        the South China Morning Post=die South China Morning Post=《南华早报》, Reuters=路透社, Xinhua=新华社, the BBC=die BBC=英国广播公司, CNN=美国有线电视新闻网, CCTV=中央电视台
        Bloomberg=彭博社, Caixin=财新, Deutsche Welle=die Deutsche Welle=德国之声, Al Jazeera=半岛电视台
    """),
    "university": glossary("""
        Tsinghua University=die Tsinghua-Universität=清华大学, Peking University=die Peking-Universität=北京大学, Fudan University=die Fudan-Universität=复旦大学
        Zhejiang University=die Zhejiang-Universität=浙江大学, Tongji University=die Tongji-Universität=同济大学, Nanjing University=die Universität Nanjing=南京大学
        Wuhan University=die Universität Wuhan=武汉大学, Renmin University=die Renmin-Universität=中国人民大学, Sun Yat-sen University=die Sun-Yat-sen-Universität=中山大学
        Sichuan University=die Universität Sichuan=四川大学, Shanghai Jiao Tong University=die Shanghai-Jiaotong-Universität=上海交通大学, Harvard University=die Harvard-Universität=哈佛大学
        Yale University=die Yale-Universität=耶鲁大学, Stanford University=die Stanford-Universität=斯坦福大学, Princeton University=die Princeton-Universität=普林斯顿大学
        Columbia University=die Columbia-Universität=哥伦比亚大学, the Massachusetts Institute of Technology=das MIT=麻省理工学院, the University of Oxford=die Universität Oxford=牛津大学
        the University of Cambridge=die Universität Cambridge=剑桥大学, the University of Tokyo=die Universität Tokio=东京大学, the University of Vienna=die Universität Wien=维也纳大学
        the University of Zurich=die Universität Zürich=苏黎世大学, ETH Zurich=die ETH Zürich=苏黎世联邦理工学院, Heidelberg University=die Universität Heidelberg=海德堡大学
        the Technical University of Munich=die Technische Universität München=慕尼黑工业大学, the Free University of Berlin=die Freie Universität Berlin=柏林自由大学
        the Humboldt University of Berlin=die Humboldt-Universität Berlin=柏林洪堡大学, RWTH Aachen University=die RWTH Aachen=亚琛工业大学
        the University of Tübingen=die Universität Tübingen=图宾根大学, the Sorbonne=die Sorbonne=索邦大学, the University of Toronto=die Universität Toronto=多伦多大学
        the University of Hong Kong=die Universität Hongkong=香港大学
    """),
    "union": glossary("""
        the World Health Organization=die Weltgesundheitsorganisation=世界卫生组织/世卫组织, the WHO=die WHO=世卫组织, the European Union=die Europäische Union=欧洲联盟/欧盟
        the EU=die EU=欧盟, the United Nations=pl Vereinten Nationen=联合国, the UN=die UNO=联合国, the International Monetary Fund=der Internationale Währungsfonds=国际货币基金组织
        the IMF=der IWF=国际货币基金组织, the World Bank=die Weltbank=世界银行, NATO=die NATO=北约/北大西洋公约组织
        the World Trade Organization=die Welthandelsorganisation=世界贸易组织/世贸组织, the WTO=die WTO=世贸组织, UNESCO=die UNESCO=联合国教科文组织, the OECD=die OECD=经合组织
        OPEC=die OPEC=石油输出国组织/欧佩克, ASEAN=die ASEAN=东盟, the African Union=die Afrikanische Union=非洲联盟/非盟, the Arab League=die Arabische Liga=阿拉伯国家联盟/阿盟
    """),
    "body": glossary("""
        UNICEF=联合国儿童基金会, the Red Cross=das Rote Kreuz=红十字会, Doctors Without Borders=Ärzte ohne Grenzen=无国界医生组织, Amnesty International=国际特赦组织, Greenpeace=绿色和平组织
        the European Commission=die Europäische Kommission=欧盟委员会, the European Parliament=das Europäische Parlament=欧洲议会
        the European Central Bank=die Europäische Zentralbank=欧洲中央银行/欧洲央行, the ECB=die EZB=欧洲央行, the Federal Reserve=die Federal Reserve=美联储
        the Security Council=der Sicherheitsrat=安理会, the International Atomic Energy Agency=die Internationale Atomenergie-Organisation=国际原子能机构, the IAEA=die IAEO=国际原子能机构
        NASA=die NASA=美国国家航空航天局, the International Olympic Committee=das Internationale Olympische Komitee=国际奥委会, the IOC=das IOC=国际奥委会, FIFA=die FIFA=国际足联
        UEFA=die UEFA=欧足联, Interpol=国际刑警组织, the Bundestag=der Bundestag=德国联邦议院, the Bundesrat=der Bundesrat=德国联邦参议院, the Bundesbank=die Bundesbank=德国联邦银行/德国央行
        the National People's Congress=der Nationale Volkskongress=全国人民代表大会/全国人大, the State Council=der Staatsrat=国务院, the Pentagon=das Pentagon=五角大楼
        the House of Representatives=das Repräsentantenhaus=众议院, the Senate=der Senat=参议院, the Vatican=der Vatikan=梵蒂冈
        the European Court of Justice=der Europäische Gerichtshof=欧洲法院, the Max Planck Society=die Max-Planck-Gesellschaft=马克斯·普朗克学会
        the Goethe-Institut=das Goethe-Institut=歌德学院
    """),
    "party": glossary("""
        the CDU=die CDU=基民盟, the SPD=die SPD=社民党, the CSU=die CSU=基社盟, the FDP=die FDP=自民党, the Greens=pl Grünen=绿党, the Labour Party=die Labour-Partei=工党
        the Conservative Party=die Konservative Partei=保守党, the Democratic Party=die Demokratische Partei=民主党, the Republican Party=die Republikanische Partei=共和党
        the Communist Party=die Kommunistische Partei=共产党
    """),
    "weekday": glossary("""
        Monday=Montag=星期一/周一, Tuesday=Dienstag=星期二/周二, Wednesday=Mittwoch=星期三/周三, Thursday=Donnerstag=星期四/周四, Friday=Freitag=星期五/周五, Saturday=Samstag=星期六/周六
        Sunday=Sonntag=星期日/周日/星期天
    """),
    "month": glossary("""
        January=Januar=1月/一月, February=Februar=2月/二月, March=März=3月/三月, April=4月/四月, May=Mai=5月/五月, June=Juni=6月/六月, July=Juli=7月/七月, August=8月/八月, September=9月/九月
        October=Oktober=10月/十月, November=11月/十一月, December=Dezember=12月/十二月
    """),
    "holiday": glossary("""
        Christmas=Weihnachten=圣诞节, Easter=Ostern=复活节, Pentecost=Pfingsten=圣灵降临节, New Year's Eve=Silvester=跨年夜, Halloween=万圣节, Thanksgiving=感恩节, Ramadan=der Ramadan=斋月
        Carnival=der Karneval=狂欢节, the Spring Festival=das Frühlingsfest=春节, Chinese New Year=das chinesische Neujahrsfest=春节/中国新年, the Mid-Autumn Festival=das Mittherbstfest=中秋节
        the Dragon Boat Festival=das Drachenbootfest=端午节, the Lantern Festival=das Laternenfest=元宵节, the Qingming Festival=das Qingming-Fest=清明节, Labour Day=der Tag der Arbeit=劳动节
        Women's Day=der Frauentag=妇女节, Mother's Day=der Muttertag=母亲节, Valentine's Day=der Valentinstag=情人节, National Day=der Nationalfeiertag=国庆节
        the Oktoberfest=das Oktoberfest=慕尼黑啤酒节, Children's Day=der Kindertag=儿童节
    """),
    "greeting": glossary("""
        Merry Christmas!=Frohe Weihnachten!=圣诞快乐！, Happy Easter!=Frohe Ostern!=复活节快乐！, Happy New Year!=Frohes neues Jahr!=新年快乐！
        Happy Mother's Day!=Alles Gute zum Muttertag!=母亲节快乐！, Happy Spring Festival!=Frohes Frühlingsfest!=春节快乐！, Happy Mid-Autumn Festival!=Frohes Mittherbstfest!=中秋节快乐！
    """),
    "maker": glossary("""
        Toyota=丰田, Honda=本田, Nissan=日产, Mazda=马自达, Audi=奥迪, Porsche=保时捷, Mercedes=奔驰, BMW=宝马, Volkswagen=大众, Volvo=沃尔沃, Tesla=特斯拉, Ford=福特, BYD=比亚迪, Geely=吉利
        Fiat=菲亚特, Ferrari=法拉利, Renault=雷诺
    """),
    "religion": glossary("""
        Christianity=das Christentum=基督教, Islam=der Islam=伊斯兰教, Judaism=das Judentum=犹太教, Buddhism=der Buddhismus=佛教, Hinduism=der Hinduismus=印度教, Taoism=der Taoismus=道教
        Confucianism=der Konfuzianismus=儒家思想, Catholicism=der Katholizismus=天主教, Protestantism=der Protestantismus=新教, Shinto=der Shintoismus=神道教
    """),
    "Western first": glossary("""
        John=约翰, Peter=彼得, Michael=迈克尔, David=大卫, Thomas=托马斯, Robert=罗伯特, William=威廉, James=詹姆斯, George=乔治, Charles=查尔斯, Henry=亨利, Richard=理查德, Daniel=丹尼尔
        Paul=保罗, Mark=马克, Andrew=安德鲁, Simon=西蒙, Jack=杰克, Tom=汤姆, Oliver=奥利弗, Harry=哈里, Adam=亚当, Alexander=亚历山大, Martin=马丁, Stefan=斯特凡, Hans=汉斯, Karl=卡尔
        Klaus=克劳斯, Wolfgang=沃尔夫冈, Jürgen=于尔根, Günter=京特, Heinrich=海因里希, Matthias=马蒂亚斯, Andreas=安德烈亚斯, Sebastian=塞巴斯蒂安, Felix=费利克斯, Lukas=卢卡斯, Jonas=约纳斯
        Max=马克斯, Florian=弗洛里安, Antonio=安东尼奥, Carlos=卡洛斯, Juan=胡安, Luis=路易斯, Pedro=佩德罗, Marco=马尔科, Giovanni=乔瓦尼, Pierre=皮埃尔, François=弗朗索瓦, Nicolas=尼古拉
        Ivan=伊万, Sergei=谢尔盖, Dmitri=德米特里, Igor=伊戈尔, Lars=拉尔斯, Erik=埃里克, Ahmed=艾哈迈德, Ali=阿里, Omar=奥马尔, Edward=爱德华, Frank=弗兰克, Steven=史蒂文, Kevin=凯文
        Brian=布赖恩, Philip=菲利普, Samuel=塞缪尔, Mary=玛丽, Anna=安娜, Maria=玛丽亚, Elizabeth=伊丽莎白, Jennifer=珍妮弗, Linda=琳达, Susan=苏珊, Sarah=萨拉, Lisa=莉萨, Emma=埃玛
        Emily=埃米莉, Sophie=索菲, Julia=朱莉娅, Laura=劳拉, Alice=艾丽斯, Helen=海伦, Catherine=凯瑟琳, Margaret=玛格丽特, Karen=卡伦, Nancy=南希, Jane=简, Kate=凯特, Lucy=露西
        Charlotte=夏洛特, Olivia=奥利维娅, Monika=莫妮卡, Petra=彼得拉, Sabine=扎比内, Claudia=克劳迪娅, Christine=克里斯蒂娜, Katharina=卡塔琳娜, Eva=伊娃, Ingrid=英格丽德, Martha=玛莎
        Isabel=伊莎贝尔, Carmen=卡门, Natalia=纳塔利娅, Olga=奥尔加, Tatiana=塔季扬娜, Fatima=法蒂玛, Hannah=汉娜, Victoria=维多利亚, Rachel=雷切尔, Jessica=杰西卡, Diana=黛安娜
        Barbara=芭芭拉, Nina=尼娜
    """),
    "Western surname": glossary("""
        Smith=史密斯, Johnson=约翰逊, Williams=威廉姆斯, Brown=布朗, Jones=琼斯, Miller=米勒, Davis=戴维斯, Wilson=威尔逊, Taylor=泰勒, Clark=克拉克, Lewis=刘易斯, Walker=沃克, Hall=霍尔
        Allen=艾伦, Young=扬, Wright=赖特, Scott=斯科特, Green=格林, Baker=贝克, Adams=亚当斯, Nelson=纳尔逊, Carter=卡特, Mitchell=米切尔, Roberts=罗伯茨, Turner=特纳, Phillips=菲利普斯
        Campbell=坎贝尔, Parker=帕克, Evans=埃文斯, Edwards=爱德华兹, Collins=柯林斯, Stewart=斯图尔特, Morris=莫里斯, Murphy=墨菲, Cook=库克, Rogers=罗杰斯, Cooper=库珀, Bailey=贝利
        Kelly=凯利, Howard=霍华德, Watson=沃森, Bennett=贝内特, Hughes=休斯, Foster=福斯特, Russell=拉塞尔, Hamilton=汉密尔顿, Graham=格雷厄姆, Sullivan=沙利文, Wallace=华莱士, Harrison=哈里森
        Gibson=吉布森, Ellis=埃利斯, Müller=米勒, Schmidt=施密特, Schneider=施奈德, Fischer=菲舍尔, Weber=韦伯, Meyer=迈尔, Wagner=瓦格纳, Becker=贝克尔, Schulz=舒尔茨, Hoffmann=霍夫曼
        Koch=科赫, Richter=里希特, Klein=克莱因, Wolf=沃尔夫, Schröder=施罗德, Neumann=诺伊曼, Schwarz=施瓦茨, Zimmermann=齐默尔曼, Braun=布劳恩, Krüger=克吕格尔, Hartmann=哈特曼, Lange=朗格
        Krause=克劳泽, Lehmann=莱曼, Köhler=克勒, Keller=凯勒, Huber=胡贝尔, Bauer=鲍尔, Gruber=格鲁贝尔, Steiner=施泰纳, Garcia=加西亚, Martinez=马丁内斯, Rodriguez=罗德里格斯, Lopez=洛佩斯
        Gonzalez=冈萨雷斯, Fernandez=费尔南德斯, Silva=席尔瓦, Santos=桑托斯, Rossi=罗西, Ferrari=费拉里, Bianchi=比安基, Dubois=杜布瓦, Bernard=贝尔纳, Moreau=莫罗, Laurent=洛朗, Jansen=扬森
        Hansen=汉森, Andersson=安德松, Larsen=拉森, Nielsen=尼尔森, Ivanov=Iwanow=伊万诺夫, Petrov=Petrow=彼得罗夫, Popov=Popow=波波夫, Kowalski=科瓦尔斯基, Novak=诺瓦克, Horvat=霍尔瓦特
        Nagy=纳吉, Papadopoulos=帕帕佐普洛斯, Hassan=哈桑, Khan=汗, Kumar=库马尔, Cohen=科恩
    """),
    "Chinese surname": glossary("""
        Wang=王, Li=李, Zhang=张, Liu=刘, Chen=陈, Yang=杨, Zhao=赵, Huang=黄, Zhou=周, Wu=吴, Xu=徐, Sun=孙, Hu=胡, Zhu=朱, Gao=高, Lin=林, He=何, Guo=郭, Ma=马, Luo=罗, Liang=梁, Song=宋
        Zheng=郑, Xie=谢, Han=韩, Tang=唐, Feng=冯, Yu=于, Dong=董, Xiao=萧, Cheng=程, Cao=曹, Yuan=袁, Deng=邓, Xu=许, Fu=傅, Shen=沈, Zeng=曾, Peng=彭, Su=苏, Lu=卢, Jiang=蒋, Cai=蔡, Jia=贾
        Ding=丁, Wei=魏, Xue=薛, Ye=叶, Yan=阎, Yu=余, Pan=潘, Du=杜, Dai=戴, Xia=夏, Zhong=钟, Tian=田, Ren=任, Jiang=姜, Fan=范, Fang=方, Shi=石, Yao=姚, Tan=谭, Liao=廖, Zou=邹, Xiong=熊
        Jin=金, Lu=陆, Hao=郝, Kong=孔, Bai=白, Cui=崔, Kang=康, Mao=毛, Qiu=邱, Qin=秦, Gu=顾, Hou=侯, Shao=邵, Meng=孟, Long=龙, Wan=万, Duan=段, Qian=钱, Yin=尹, Li=黎, Yi=易, Qiao=乔
        Gong=龚, Wen=文, Ouyang=欧阳, Sima=司马, Shangguan=上官, Zhuge=诸葛
    """),
}

# The pinyin of the characters in Chinese given names, and the names.
PINYIN = """
    ming明铭 xiao晓小 hua华 wei伟薇 fang芳 na娜 min敏 jing静晶 li丽莉立 qiang强 lei磊蕾 jun军俊君 yang洋阳 yong勇 yan艳燕妍 jie杰洁 juan娟 tao涛 chao超 xiu秀 xia霞 ping平萍 gang刚 gui桂
    ying英颖莹 hui慧辉 jian建健 guo国 zhi志智 wen文 dong东冬 hai海 bo波博 ning宁 fei飞菲 bin斌彬 yu宇雨玉 hao浩昊 xin欣鑫新 jia佳嘉家 yi怡艺逸毅 zi子梓紫 xuan轩萱 han涵 chen晨辰 rui睿瑞
    hong红宏鸿 mei梅美 lan兰岚 feng峰凤 long龙 lin林琳 xue雪学 qing庆青清晴 chun春 rong荣蓉 shu淑树 zhen珍振 ting婷 dan丹 kai凯 peng鹏 zhe哲 yun云 tian天 shi诗 meng梦 ke可 dong栋 gao高
    hua花 ran然 hao豪 hang航 zhu珠 lian莲 qin琴 da达 fen芬 yao瑶 sheng升 ling玲 yong永 yi意 ru如 si思 sheng胜生 guang光 ze泽 qi琪 de德 ren仁 yuan媛远 xiang翔祥 shan珊山 song松 zhong忠
    xing星兴 jin金 man曼 bing冰 wan婉 ya雅
"""
SYLLABLES = {character: syllable for syllable, group in re.findall(r"([a-z]+)(\S+)", PINYIN) for character in group}
GIVEN = """
    伟 芳 娜 敏 静 丽 强 磊 军 洋 勇 艳 杰 娟 涛 超 霞 平 刚 英 颖 慧 辉 健 斌 彬 宇 浩 昊 欣 鑫 佳 怡 轩 晨 睿 红 梅 兰 峰 凤 龙 琳 雪 婷 丹 凯 鹏 哲 翔 珊 莉 俊 燕 妍 洁 蕾 萍 莹 波 博
    宁 飞 菲 晶 薇 明 华 晓明 晓红 晓东 晓燕 晓丽 晓华 晓梅 晓峰 晓敏 晓静 晓雪 晓春 晓光 晓辉 晓云 小红 小明 小平 小兰 小龙 小芳 小燕 建国 建华 建军 建平 建明 建东 建林 建新 建波 建峰
    建英 建忠 建兴 国强 国华 国平 国栋 国庆 国辉 国荣 国梅 国兴 国林 志强 志明 志伟 志刚 志勇 志远 志华 志国 志鹏 志军 志杰 志高 文华 文杰 文静 文军 文辉 文博 文涛 文斌 文婷 文慧 文龙 文学
    海燕 海涛 海峰 海波 海龙 海洋 海明 海英 海霞 丽华 丽娜 丽萍 丽娟 丽君 丽红 丽敏 丽霞 丽英 秀英 秀兰 秀珍 秀梅 秀华 秀云 秀丽 桂英 桂兰 桂芳 桂花 玉兰 玉梅 玉华 玉珍 玉英 玉婷 玉龙 雨欣
    雨涵 雨婷 雨晴 雨轩 雨辰 欣怡 欣妍 欣然 佳怡 佳琪 佳慧 佳明 佳宁 嘉欣 嘉怡 嘉明 嘉豪 嘉琪 家明 家豪 家辉 家强 子轩 子涵 子晨 子睿 子豪 子萱 子杰 梓涵 梓轩 梓萱 紫涵 紫萱 浩宇 浩然 浩天
    浩轩 浩明 宇轩 宇航 宇辰 宇飞 俊杰 俊峰 俊辉 俊明 俊豪 俊宇 明辉 明华 明远 明哲 明珠 明杰 明霞 春梅 春华 春生 春燕 春兰 春英 雪梅 雪莲 雪琴 雪峰 雪莹 红梅 红霞 红英 红军 宏伟 宏宇 宏达
    鸿飞 淑芬 淑华 淑珍 淑英 淑芳 树林 振华 振国 振东 振宇 诗涵 诗雨 诗琪 梦琪 梦婷 梦洁 梦雪 梦瑶 思远 思琪 思雨 思涵 思敏 天宇 天明 天翔 泽宇 永强 永刚 永明 永红 德华 德明 德胜 光辉 光明
    光荣 金龙 金凤 金花 新华 新宇 东升 东明 冬梅 庆华 清华 青松 美玲 美丽 美华 凤英 凤兰 凤霞 兰英 云飞 云龙 婉婷 雅琴 雅静 雅婷 曼丽 冰冰 婷婷 丹丹 静静 莉莉 菲菲 洋洋 明明 佳佳 慧敏 慧玲
    慧芳 慧英 瑞雪 瑞华 忠明 仁杰 学文 学军 学明 如意 可欣 星宇 辰逸 逸飞 毅刚
"""

# Titles before a surname.
TITLES = [
    Name("Mr. {}", "Herr {}", "{}先生"),
    Name("Mrs. {}", "Frau {}", "{}太太"),
    Name("Ms. {}", "Frau {}", "{}女士"),
    Name("Professor {}", "Professor {}", "{}教授"),
    Name("Dr. {}", "Dr. {}", "{}博士"),
    Name("Mayor {}", "Bürgermeister {}", "{}市长"),
    Name("Minister {}", "Minister {}", "{}部长"),
    Name("Judge {}", "Richter {}", "{}法官"),
    Name("Captain {}", "Kapitän {}", "{}船长"),
    Name("President {}", "Präsident {}", "{}总统"),  # the last is for Western surnames
]

# The templates. A slot names its kind; a 2 after the kind marks a second slot of that kind. The German side gives the
# case of a name: {country:dative}, {country:accusative}, {country:to} for "nach Polen" or "in die Schweiz",
# {country:of} for "von Polen" or "der Schweiz". <hat/haben> agrees with the first name that may be a plural.

PHRASES = templates("""
{country} | {country:bare} | {country}
{city} | {city} | {city}
{person} | {person} | {person}
{figure} | {figure} | {figure}
{leader} | {leader} | {leader}
{athlete} | {athlete} | {athlete}
{company} | {company} | {company}
{organisation} | {organisation:bare} | {organisation}
{university} | {university:bare} | {university}
{water} | {water:bare} | {water}
{archipelago} | {archipelago} | {archipelago}
{region} | {region:bare} | {region}
{titled} | {titled} | {titled}
{city}, {country} | {city}, {country:bare} | {country}{city}
{city} and {city2} | {city} und {city2} | {city}和{city2}
from {city} to {city2} | von {city} nach {city2} | 从{city}到{city2}
in {country} and {country2} | in {country:dative} und {country2:dative} | 在{country}和{country2}
on {weekday} in {city} | am {weekday} in {city} | {weekday}在{city}
between {country} and {country2} | zwischen {country:dative} und {country2:dative} | 在{country}和{country2}之间
{person} from {city} | {person} aus {city} | 来自{city}的{person}
the capital of {country} | die Hauptstadt {country:of} | {country}的首都
the {adjective} government | die {adjective}e Regierung | {adjective}政府
the {adjective} embassy in {city} | die {adjective}e Botschaft in {city} | {adjective}驻{city}大使馆
the life of {figure} | das Leben von {figure:dative} | {figure}的一生
the works of {writer} | die Werke von {writer} | {writer}的作品
the music of {musician} | die Musik von {musician} | {musician}的音乐
a hotel on {water} | ein Hotel an {water:dative} | {water}边的一家酒店
{greeting} | {greeting} | {greeting}
{weekday}, {day} | {weekday}, {day} | {day}，{weekday}
{era} | {era} | {era}
""")

SENTENCES = templates("""
{leader} arrived in {city} on {weekday}. | {leader} ist am {weekday} in {city} eingetroffen. | {leader}于{weekday}抵达{city}。
{leader} will travel to {country} next week. | {leader} wird nächste Woche {country:to} reisen. | {leader}将于下周前往{country}。
{leader} and {leader2} met in {city} on {weekday}. | {leader} und {leader2} trafen sich am {weekday} in {city}. | {leader}和{leader2}{weekday}在{city}会晤。
On {weekday}, {leader} gave a speech at {university}. | Am {weekday} hielt {leader} an {university:dative} eine Rede. | {weekday}，{leader}在{university}发表了演讲。
{leader} spoke about the relations between {country} and {country2}. | {leader} sprach über die Beziehungen zwischen {country:dative} und {country2:dative}. | {leader}谈到了{country}与{country2}的关系。
In {city}, {person} praised the work of {organisation}. | In {city} lobte {person} die Arbeit {organisation:of}. | 在{city}，{person}赞扬了{organisation}的工作。
The visit of {leader} to {city} was reported by {media}. | Über den Besuch von {leader} in {city} berichtete {media}. | {media}报道了{leader}对{city}的访问。
Did {leader} speak to {leader2} on {weekday}? | Hat {leader} am {weekday} mit {leader2} gesprochen? | {leader}{weekday}和{leader2}通话了吗？
{country} and {country2} signed an agreement in {city} on {weekday}. | {country} und {country2} haben am {weekday} in {city} ein Abkommen unterzeichnet. | {country}和{country2}{weekday}在{city}签署了一项协议。
The foreign ministers of {country} and {country2} will meet in {city} in {month}. | Die Außenminister aus {country:dative} und {country2:dative} werden sich im {month} in {city} treffen. | {country}和{country2}的外长将于{month}在{city}会晤。
{organisation} will hold its next meeting in {city}. | {organisation} <hält/halten> die nächste Sitzung in {city} ab. | {organisation}的下一次会议将在{city}举行。
{organisation} published a report on {country} on {weekday}. | {organisation} <hat/haben> am {weekday} einen Bericht über {country:accusative} veröffentlicht. | {organisation}{weekday}发布了一份关于{country}的报告。
According to {organisation}, the situation in {country} has improved. | Nach Angaben {organisation:of} hat sich die Lage in {country:dative} verbessert. | 据{organisation}称，{country}的局势有所好转。
"We are grateful to {organisation}," said {person} in {city} on {weekday}. | "Wir sind {organisation:dative} dankbar", sagte {person} am {weekday} in {city}. | “我们感谢{organisation}。”{person}{weekday}在{city}说。
"I am looking forward to {city}," {person} told {media}. | "Ich freue mich auf {city}", sagte {person} gegenüber {media:dative}. | “我很期待去{city}。”{person}对{media}说。
The {adjective} government rejected the proposal on {weekday}. | Die {adjective}e Regierung lehnte den Vorschlag am {weekday} ab. | {adjective}政府{weekday}拒绝了这项提议。
The {adjective} foreign minister is expected in {city} on {weekday}. | Der {adjective}e Außenminister wird am {weekday} in {city} erwartet. | {adjective}外交部长预计将于{weekday}抵达{city}。
The {adjective} ambassador to {country} comes from {city}. | Der {adjective}e Botschafter in {country:dative} stammt aus {city}. | {adjective}驻{country}大使来自{city}。
{media} reported on {weekday} that the talks in {city} had been postponed. | {media} berichtete am {weekday}, dass die Gespräche in {city} verschoben worden seien. | {media}{weekday}报道说，{city}的会谈已被推迟。
The summit of {union} begins in {city} on {weekday}. | Das Gipfeltreffen {union:of} beginnt am {weekday} in {city}. | {union}峰会将于{weekday}在{city}开幕。
Delegates from {country}, {country2} and {continent} came to {city}. | Delegierte aus {country:dative}, {country2:dative} und {continent:dative} kamen nach {city}. | 来自{country}、{country2}和{continent}的代表来到了{city}。
A conference on {religion} will be held in {country} in {month}. | Im {month} findet in {country:dative} eine Konferenz über {religion:accusative} statt. | {month}，{country}将举行一次关于{religion}的会议。
{party} is meeting in {city} on {weekday}. | {party} <trifft/treffen> sich am {weekday} in {city}. | {party}{weekday}在{city}开会。
{person} lives in {city} and is a member of {party}. | {person} lebt in {city} und ist Mitglied {party:of}. | {person}住在{city}，是{party}成员。
The heads of {union} and {body} agreed on a common plan. | Die Spitzen {union:of} und {body:of} einigten sich auf einen gemeinsamen Plan. | {union}和{body}的负责人就一项共同计划达成一致。
An earthquake was felt in {city} and {city2} on {weekday} evening. | Am {weekday}abend war in {city} und {city2} ein Erdbeben zu spüren. | {weekday}晚上，{city}和{city2}有震感。
Heavy rain is expected in {region} from {weekday} on. | Ab {weekday} wird in {region:dative} starker Regen erwartet. | 预计从{weekday}起{region}将有大雨。
In {era}, thousands of people came to the festival in {city}. | Im {era} kamen Tausende Menschen zum Fest nach {city}. | {era}，数千人来到{city}参加节日活动。
When did {country} join {union}? | Wann <ist/sind> {country} {union:dative} beigetreten? | {country}是什么时候加入{union}的？
Relations between {country} and {union} have become closer. | Die Beziehungen zwischen {country:dative} und {union:dative} sind enger geworden. | {country}与{union}的关系更加密切了。

On the way to {country} we stopped in {city}. | Auf dem Weg {country:to} haben wir in {city} Halt gemacht. | 去{country}的路上，我们在{city}停留了一下。
{country} wants to sell more goods to {country2}. | {country} <will/wollen> mehr Waren an {country2:accusative} verkaufen. | {country}希望向{country2}出售更多商品。
{person} knows {country} better than {country2}. | {person} kennt {country:accusative} besser als {country2:accusative}. | 比起{country2}，{person}更了解{country}。
{person} has moved from {city} to {region}. | {person} ist von {city} {region:to} gezogen. | {person}从{city}搬到了{region}。
{person} lived in {city} until {year}. | {person} lebte bis {year} in {city}. | {person}在{city}住到{year}年。
How far is it from {city} to {city2}? | Wie weit ist es von {city} nach {city2}? | 从{city}到{city2}有多远？
What is the capital of {country}? | Wie heißt die Hauptstadt {country:of}? | {country}的首都是哪里？
Where is {city}? | Wo liegt {city}? | {city}在哪里？
Is {city} in {country} or in {country2}? | Liegt {city} in {country:dative} oder in {country2:dative}? | {city}在{country}还是在{country2}？
Which is bigger, {city} or {city2}? | Was ist größer, {city} oder {city2}? | {city}和{city2}哪个更大？
{company} sells its goods in {continent} and in {country}. | {company} verkauft seine Waren in {continent:dative} und in {country:dative}. | {company}在{continent}和{country}销售商品。
Philosophers from {continent} and {continent2} met in {city}. | Philosophen aus {continent:dative} und {continent2:dative} trafen sich in {city}. | 来自{continent}和{continent2}的哲学家在{city}会面。
{country} exports machines to {continent} and {continent2}. | {country} <exportiert/exportieren> Maschinen {continent:to} und {continent2:to}. | {country}向{continent}和{continent2}出口机器。
In {country}, many people learn {language} at school. | In {country:dative} lernen viele Menschen in der Schule {language}. | 在{country}，很多人在学校学习{language}。
{language} is more difficult than {language2}. | {language} ist schwieriger als {language2}. | {language}比{language2}难。
{person} speaks {language}, {language2} and a little English. | {person} spricht {language}, {language2} und ein wenig Englisch. | {person}会说{language}、{language2}和一点英语。
Do you speak {language}? | Sprechen Sie {language}? | 你会说{language}吗？
The book has been translated from {tongue} into {tongue2}. | Das Buch wurde aus dem {tongue}en ins {tongue2}e übersetzt. | 这本书已从{tongue}译成{tongue2}。
{religion} came to {country} many centuries ago. | {religion} kam vor vielen Jahrhunderten {country:to}. | {religion}在许多世纪前传入{country}。
{religion} and {religion2} have many followers in {country}. | {religion} und {religion2} haben in {country:dative} viele Anhänger. | {religion}和{religion2}在{country}有很多信徒。
The lecture is about {religion} in {continent}. | Der Vortrag handelt von {religion:dative} in {continent:dative}. | 讲座的主题是{continent}的{religion}。
In the evening {first} and {first2} walked along {water}. | Am Abend gingen {first} und {first2} an {water:dative} entlang. | 傍晚，{first}和{first2}沿着{water}散步。
{person} watched birds on {water}. | {person} beobachtete an {water:dative} Vögel. | {person}在{water}边观鸟。
The photo shows {water} and {mountain}. | Das Foto zeigt {water:accusative} und {mountain:accusative}. | 照片上是{water}和{mountain}。
The water in {water} is warmer now than in {month}. | In {water:dative} ist das Wasser jetzt wärmer als im {month}. | 现在{water}的水比{month}暖和。
{first}, have you ever seen {mountain}? | {first}, hast du schon einmal {mountain:accusative} gesehen? | {first}，你见过{mountain}吗？
{mountain} can be seen from far away. | {mountain} <ist/sind> schon von Weitem zu sehen. | {mountain}从很远的地方就能看到。
{person} wrote a book about {mountain}. | {person} hat ein Buch über {mountain:accusative} geschrieben. | {person}写了一本关于{mountain}的书。

We are flying from {city} to {city2} on {weekday}. | Wir fliegen am {weekday} von {city} nach {city2}. | 我们{weekday}从{city}飞往{city2}。
The train from {city} to {city2} is late. | Der Zug von {city} nach {city2} hat Verspätung. | 从{city}开往{city2}的火车晚点了。
I have never been to {country}. | Ich war noch nie in {country:dative}. | 我从来没有去过{country}。
In {month} we are going to {country}. | Im {month} fahren wir {country:to}. | {month}我们要去{country}。
My sister has been living in {city} since {month}. | Meine Schwester wohnt seit {month} in {city}. | 我姐姐从{month}起一直住在{city}。
My neighbors come from {country}, but they were married in {country2}. | Meine Nachbarn kommen aus {country:dative}, haben aber in {country2:dative} geheiratet. | 我的邻居来自{country}，但他们是在{country2}结的婚。
{person} and {person2} got to know each other in {city}. | {person} und {person2} haben sich in {city} kennengelernt. | {person}和{person2}是在{city}认识的。
{person} was born in {city}, grew up in {city2} and now lives in {country}. | {person} ist in {city} geboren, in {city2} aufgewachsen und lebt heute in {country:dative}. | {person}出生于{city}，在{city2}长大，现在住在{country}。
{person} moved from {country} to {country2} in {year}. | {person} zog {year} aus {country:dative} {country2:to}. | {person}于{year}年从{country}移居{country2}。
Do you need a visa for {country}? | Braucht man für {country:accusative} ein Visum? | 去{country}需要签证吗？
The weather in {city} is better than in {city2}. | Das Wetter in {city} ist besser als in {city2}. | {city}的天气比{city2}好。
A flight to {city} costs more than one to {city2}. | Ein Flug nach {city} kostet mehr als einer nach {city2}. | 飞{city}的机票比飞{city2}的贵。
{first} and {first2} spent their holidays on {island}. | {first} und {first2} haben ihren Urlaub auf {island} verbracht. | {first}和{first2}在{island}度过了假期。
The ferry to {island} leaves on {weekday}. | Die Fähre nach {island} fährt am {weekday}. | 去{island}的渡轮{weekday}出发。
Which island do you like better, {island} or {island2}? | Welche Insel gefällt dir besser, {island} oder {island2}? | {island}和{island2}，你更喜欢哪个岛？
On the trip {person} also visited {sight}. | Auf der Reise hat {person} auch {sight:accusative} besichtigt. | 旅途中{person}还参观了{sight}。
{sight} attracts visitors from {country} and {country2}. | {sight} lockt Besucher aus {country:dative} und {country2:dative} an. | {sight}吸引着来自{country}和{country2}的游客。
Excuse me, does this bus go to {city}? | Entschuldigung, fährt dieser Bus nach {city}? | 请问，这辆公交车去{city}吗？
I bought this tea in {city} and the coffee in {city2}. | Diesen Tee habe ich in {city} gekauft und den Kaffee in {city2}. | 这茶是我在{city}买的，咖啡是在{city2}买的。
{titled} lives in a small house near {city}. | {titled} wohnt in einem kleinen Haus bei {city}. | {titled}住在{city}附近的一座小房子里。
{titled} called on {weekday} and asked about {titled2}. | {titled} rief am {weekday} an und fragte nach {titled2:dative}. | {titled}{weekday}打来电话，询问了{titled2}的情况。
Good morning, may I speak to {titled}? | Guten Morgen, kann ich bitte mit {titled:dative} sprechen? | 早上好，请问可以和{titled}通话吗？
Where did you meet {titled}? | Wo haben Sie {titled:accusative} kennengelernt? | 您是在哪里认识{titled}的？
{first} and {first2} are coming to visit us on {weekday}. | {first} und {first2} besuchen uns am {weekday}. | {first}和{first2}{weekday}来看我们。
{first} is older than {first2}. | {first} ist älter als {first2}. | {first}比{first2}年纪大。
{first}, have you already written to {person}? | {first}, hast du {person} schon geschrieben? | {first}，你给{person}写信了吗？
What are you doing for {holiday}? | Was machst du zu {holiday:dative}? | {holiday}你做什么？
For {holiday} we always go to {city}. | Zu {holiday:dative} fahren wir immer nach {city}. | {holiday}我们总是去{city}。
How is {holiday} celebrated in {country}? | Wie feiert man in {country:dative} {holiday:accusative}? | {country}怎么庆祝{holiday}？
{holiday} is {first}'s favorite holiday. | {first} mag von allen Festen {holiday:accusative} am liebsten. | {holiday}是{first}最喜欢的节日。
From {daily} to {daily2} the museum in {city} is closed. | Von {daily} bis {daily2} ist das Museum in {city} geschlossen. | {city}的博物馆{daily}到{daily2}闭馆。
Is today {daily} or {daily2}? | Ist heute {daily} oder {daily2}? | 今天是{daily}还是{daily2}？
The shop is open every {weekday} except in {month}. | Das Geschäft ist jeden {weekday} geöffnet, außer im {month}. | 除了{month}，这家商店每个{weekday}都营业。
My birthday is in {monthly}, yours is in {monthly2}. | Ich habe im {monthly} Geburtstag, du im {monthly2}. | 我的生日在{monthly}，你的在{monthly2}。
Many tourists visit {archipelago} in {month}. | Viele Touristen besuchen im {month} {archipelago:accusative}. | 许多游客{month}去{archipelago}旅游。
{person} flew from {city} to {archipelago} on {weekday}. | {person} flog am {weekday} von {city} auf {archipelago:accusative}. | {person}{weekday}从{city}飞往{archipelago}。
The weather in {archipelago} is better than in {city}. | Auf {archipelago:dative} ist das Wetter besser als in {city}. | {archipelago}的天气比{city}好。
I use {product} every day, but my parents prefer {product2}. | Ich benutze jeden Tag {product}, aber meine Eltern bevorzugen {product2}. | 我每天都用{product}，但我父母更喜欢{product2}。
Can you send me the photos from {city} on {messenger}? | Kannst du mir die Fotos aus {city} über {messenger} schicken? | 你能用{messenger}把{city}的照片发给我吗？

{company} is opening a new office in {city}. | {company} eröffnet ein neues Büro in {city}. | {company}将在{city}开设新的办事处。
{company} and {company2} want to work together in {country}. | {company} und {company2} wollen in {country:dative} zusammenarbeiten. | {company}和{company2}希望在{country}合作。
{company} announced on {weekday} that {person} would head its business in {continent}. | {company} gab am {weekday} bekannt, dass {person} das Geschäft in {continent:dative} leiten wird. | {company}{weekday}宣布，{person}将负责其在{continent}的业务。
{person} has been working for {company} in {city} since {year}. | {person} arbeitet seit {year} bei {company} in {city}. | {person}自{year}年以来一直在{city}为{company}工作。
{company} is building a factory in {region}. | {company} baut eine Fabrik in {region:dative}. | {company}正在{region}建厂。
Before joining {company}, {person} studied at {university}. | Vor dem Wechsel zu {company} hat {person} an {university:dative} studiert. | 加入{company}之前，{person}曾就读于{university}。
Shares of {company} rose on {weekday}, while those of {company2} fell. | Die Aktien von {company} stiegen am {weekday}, während die von {company2} fielen. | {weekday}，{company}股价上涨，而{company2}股价下跌。
{company} sells more in {country} than in {country2}. | {company} verkauft in {country:dative} mehr als in {country2:dative}. | {company}在{country}的销量高于{country2}。
Will {company} open a branch in {city}? | Wird {company} eine Filiale in {city} eröffnen? | {company}会在{city}开分店吗？
Besides {company}, {company2} also took part in the trade fair in {city}. | Neben {company} nahm auch {company2} an der Messe in {city} teil. | 除了{company}，{company2}也参加了{city}的展会。
A spokesman for {company} said on {weekday} that talks with {company2} were going well. | Ein Sprecher von {company} sagte am {weekday}, die Gespräche mit {company2} liefen gut. | {company}发言人{weekday}表示，与{company2}的谈判进展顺利。
{media} asked {person} of {company} about the plans for {country}. | {media} fragte {person} von {company} nach den Plänen für {country:accusative}. | {media}就在{country}的计划询问了{company}的{person}。
{founder} gave {media} an interview. | {founder} gab {media:dative} ein Interview. | {founder}接受了{media}的采访。
I am reading a book about {founder} and {company}. | Ich lese ein Buch über {founder} und {company}. | 我在读一本关于{founder}和{company}的书。
Is the computer from {company} or from {company2}? | Ist der Computer von {company} oder von {company2}? | 这台电脑是{company}的还是{company2}的？

{country} will play against {country2} in {city} on {weekday}. | {country} <spielt/spielen> am {weekday} in {city} gegen {country2:accusative}. | {country}队{weekday}将在{city}对阵{country2}队。
The {adjective} team beat {country} in the final. | Die {adjective}e Mannschaft hat im Finale gegen {country:accusative} gewonnen. | {adjective}队在决赛中击败了{country}队。
The match between {city} and {city2} has been moved to {weekday}. | Das Spiel zwischen {city} und {city2} wurde auf {weekday} verlegt. | {city}队与{city2}队的比赛改到了{weekday}。
{person} won the marathon in {city}, ahead of {person2}. | {person} gewann den Marathon in {city} vor {person2}. | {person}赢得了{city}马拉松，领先于{person2}。
{person} is a big fan of {athlete}. | {person} ist ein großer Fan von {athlete}. | {person}是{athlete}的铁杆粉丝。
Who is more famous, {athlete} or {athlete2}? | Wer ist berühmter, {athlete} oder {athlete2}? | {athlete}和{athlete2}谁更有名？
Thousands of fans in {city} wanted to see {athlete}. | Tausende Fans in {city} wollten {athlete} sehen. | {city}有数千名粉丝想见{athlete}。
Will the next Olympic Games be held in {city} or in {city2}? | Finden die nächsten Olympischen Spiele in {city} oder in {city2} statt? | 下一届奥运会将在{city}还是{city2}举行？
The {adjective} talent {person} is moving to {country}. | Das {adjective}e Talent {person} wechselt {country:to}. | {adjective}新秀{person}将转会到{country}。

In school we read {writer} and {writer2}. | In der Schule haben wir {writer} und {writer2} gelesen. | 在学校里我们读过{writer}和{writer2}的作品。
{first}, have you read anything by {writer}? | {first}, hast du schon etwas von {writer} gelesen? | {first}，你读过{writer}的作品吗？
The library in {city} has many books by {writer}. | Die Bibliothek in {city} besitzt viele Bücher von {writer}. | {city}的图书馆藏有许多{writer}的书。
{person} would rather listen to {musician} than to {musician2}. | {person} hört lieber {musician} als {musician2}. | 比起{musician2}，{person}更喜欢听{musician}。
A concert with works by {classical} and {classical2} took place in {city}. | In {city} fand ein Konzert mit Werken von {classical} und {classical2} statt. | {city}举行了一场演奏{classical}和{classical2}作品的音乐会。
An exhibition about {artist} opens in {city} on {weekday}. | Am {weekday} wird in {city} eine Ausstellung über {artist} eröffnet. | {weekday}，一场关于{artist}的展览将在{city}开幕。
A street in {city} is named after {figure}. | In {city} ist eine Straße nach {figure:dative} benannt. | {city}有一条街道以{figure}的名字命名。
What do you know about {figure}? | Was weißt du über {figure:accusative}? | 你对{figure}了解多少？
{person} is writing a biography of {figure}. | {person} schreibt eine Biografie über {figure:accusative}. | {person}正在撰写{figure}的传记。
The film from {country} tells the story of {historical}. | Der Film aus {country:dative} erzählt die Geschichte von {historical:dative}. | 这部{country}电影讲述了{historical}的故事。
Books about {figure} are popular in {country}. | Bücher über {figure:accusative} sind in {country:dative} beliebt. | 关于{figure}的书在{country}很受欢迎。
{person} compared {thinker} with {thinker2}. | {person} verglich {thinker} mit {thinker2}. | {person}把{thinker}和{thinker2}作了比较。
A statue of {figure} stands in {city}. | In {city} steht eine Statue von {figure:dative}. | {city}有一座{figure}的雕像。

{person} studied in {city} and teaches {language} at {university}. | {person} hat in {city} studiert und unterrichtet {language} an {university:dative}. | {person}曾在{city}求学，现在在{university}教{language}。
Researchers at {university} and {university2} have found the cause. | Forscher an {university:dative} und {university2:dative} haben die Ursache gefunden. | {university}和{university2}的研究人员找到了原因。
{person} from {country} has been admitted to {university}. | {person} aus {country:dative} wurde an {university:dative} angenommen. | 来自{country}的{person}被{university}录取了。
Professor {surname} of {university} will give a talk on {country} on {weekday}. | Professor {surname} von {university:dative} hält am {weekday} einen Vortrag über {country:accusative}. | {university}的{surname}教授将于{weekday}作关于{country}的讲座。
{person} reads {adjective} newspapers and watches {adjective2} films. | {person} liest {adjective}e Zeitungen und sieht {adjective2}e Filme. | {person}看{adjective}报纸和{adjective2}电影。
On {date}, {person} came to {city} for the first time. | Am {date} kam {person} zum ersten Mal nach {city}. | {date}，{person}第一次来到{city}。
The contract between {company} and {person} was signed in {city} on {date}. | Der Vertrag zwischen {company} und {person} wurde am {date} in {city} unterzeichnet. | {company}与{person}的合同于{date}在{city}签署。
""")

# Only for Chinese: titles and kinds of places that German says otherwise, and people by their surname alone.
CHINESE_SENTENCES = templates("""
{person} traveled from {city} to {province} Province. | {person}从{city}前往{province}省。
{chinese} comes from {province} Province in China. | {chinese}来自中国{province}省。
The governor of {province} Province met a delegation from {country} on {weekday}. | {province}省省长{weekday}会见了来自{country}的代表团。
{surname} said on {weekday} that {company} would stay in {city}. | {surname}{weekday}表示，{company}将留在{city}。
"{city} has changed a lot," {surname} told {media}. | “{city}变化很大。”{surname}告诉{media}。
{person}, a {adjective} journalist, reports from {city} for {media}. | {adjective}记者{person}在{city}为{media}做报道。
{person}, a {adjective} professor at {university}, agrees. | {university}的{adjective}教授{person}对此表示赞同。
{person}, a {adjective} citizen, has lived in {province} Province since {year}. | {adjective}公民{person}自{year}年以来一直住在{province}省。
{person}, mayor of {city}, welcomed the guests from {city2}. | {city}市长{person}欢迎来自{city2}的客人。
{person}, president of {company}, visited {city} and {city2}. | {company}总裁{person}访问了{city}和{city2}。
{person}, a spokesperson for {organisation}, spoke to reporters in {city}. | {organisation}发言人{person}在{city}对记者发表讲话。
{chinese} and {western} have been friends since {year}. | {chinese}和{western}从{year}年起就是朋友。
{western}'s Chinese teacher is called {chinese}. | {western}的中文老师叫{chinese}。
My name is {chinese}, and this is my colleague {chinese2}. | 我叫{chinese}，这是我的同事{chinese2}。
Hello, I am {western} from {city}. | 你好，我是来自{city}的{western}。
Is {chinese} at home? | {chinese}在家吗？
{chinese}, {chinese2} and {western} passed the exam. | {chinese}、{chinese2}和{western}通过了考试。
{chinese} asked {western} to come to {city} on {weekday}. | {chinese}请{western}{weekday}到{city}来。
The winner is {chinese} from {province} Province. | 获胜者是来自{province}省的{chinese}。
{western} married {western2} in {city} in {era}. | {era}，{western}和{western2}在{city}结婚。
Dear {titled}, thank you for your letter from {city}. | 尊敬的{titled}，感谢您从{city}寄来的信。
{chinese} and {western} work at {company}. | {chinese}和{western}在{company}工作。
{chinese} bought a {maker} and {western} a {maker2}. | {chinese}买了一辆{maker}，{western}买了一辆{maker2}。
The {adjective} Embassy in {country} is closed on {weekday}. | {adjective}驻{country}大使馆{weekday}闭馆。
The {adjective} restaurant in {city} is very popular. | {city}的那家{adjective}餐厅很受欢迎。
{chinese} is learning {language}, because {company} has a branch in {country}. | {chinese}在学{language}，因为{company}在{country}有分公司。
The high-speed train from {city} to {city2} also stops in {city3}. | 从{city}到{city2}的高铁也停靠{city3}。
The {weekday} edition of {newspaper} carried an article about {city}. | {newspaper}{weekday}刊登了一篇关于{city}的文章。
{leader} sent a message of congratulations to {leader2}. | {leader}向{leader2}致贺电。
{leader} was welcomed at the airport in {city}. | {leader}在{city}机场受到欢迎。
Spokespersons from {country}, {country2} and {country3} attended the meeting in {city}. | {country}、{country2}和{country3}的发言人出席了在{city}举行的会议。
Tourists from {country}, {country2} and {country3} like to visit {sight}. | 来自{country}、{country2}和{country3}的游客喜欢参观{sight}。
""")

POOLS = {
    "city": ("world city", "world city", "town", "Chinese city"),  # drawn part by part, the first most often
    "region": ("state", "province", "Chinese region"),
    "organisation": ("union", "body"),
    "musician": ("classical", "popular"),
    "figure": ("historical", "thinker", "writer", "classical", "artist"),
    "first": ("Western first",),
    "surname": ("Western surname",),
}
for pool, parts in POOLS.items():
    NAMES[pool] = [name for part in parts for name in NAMES[part]]
NAMES["newspaper"] = [name for name in NAMES["media"] if name.zh.startswith("《")]
NAMES["daily"] = [Name(en, de, zh.split("/")[0]) for en, de, zh in NAMES["weekday"]]  # both written the same way
NAMES["monthly"] = [Name(en, de, zh.split("/")[0]) for en, de, zh in NAMES["month"]]
NAMES["messenger"] = [
    name for name in NAMES["product"] if name.en in ("WeChat", "WhatsApp", "Telegram", "Skype", "Instagram")
]
NAMES["tongue"] = [name for name in NAMES["language"] if name.de.endswith("sch")]  # an adjective made a noun

KNOWN = ("leader", "thinker", "writer", "classical", "musician", "athlete")
# Kinds with many names and few slots: a template with such a slot counts threefold.
MANY = re.compile(
    r"\{(figure|historical|thinker|writer|classical|artist|athlete|founder|company|water|mountain|media)\b|\{univ"
)
SLOT = re.compile(r"\{([a-z]+)([23]?)(?::([a-z]+))?\}")

# German.

ARTICLES = {
    "der": {"nominative": "der", "accusative": "den", "dative": "dem", "of": "des"},
    "die": {"nominative": "die", "accusative": "die", "dative": "der", "of": "der"},
    "das": {"nominative": "das", "accusative": "das", "dative": "dem", "of": "des"},
    "pl": {"nominative": "die", "accusative": "die", "dative": "den", "of": "der"},
}
CONTRACTIONS = {"in dem": "im", "an dem": "am", "von dem": "vom", "zu dem": "zum", "zu der": "zur", "in das": "ins"}


def decline(name: str, case: str) -> str:
    """Put a German name into a case: the article, an adjective after it, Herr, and "der Große" after a name."""
    article, _, noun = name.partition(" ")
    if article not in ARTICLES:
        if case == "of":
            return f"von {name}"
        if name.endswith((" der Große", " die Große")):
            first, epithet, _ = name.rsplit(" ", 2)
            return f"{first} {decline(f'{epithet} Große', case)}"
        return re.sub("^Herr ", "Herrn ", name) if case in ("accusative", "dative") else name
    if case in ("dative", "of") or (article == "der" and case == "accusative"):
        noun = re.sub(r"e(?= )|(?<=Groß)e$", "en", noun)
    if article == "pl" and case == "dative":
        noun = re.sub("e$", "en", noun)
    if case == "of" and article in ("der", "das") and not noun.endswith("fonds") and not noun.isupper():
        noun += "es" if noun.endswith(("s", "z")) else "s"
    return f"{ARTICLES[article][case]} {noun}"


def in_german(name: Name, case: str) -> str:
    """Write a name in German; the case "to" adds a preposition, "bare" has an article only where English has one."""
    article, _, noun = name.de.partition(" ")
    if case == "to":
        return f"in {decline(name.de, 'accusative')}" if article in ARTICLES else f"nach {name.de}"
    if case == "bare":
        return noun if article in ARTICLES and not name.en.startswith("the ") else decline(name.de, "nominative")
    return decline(name.de, case or "nominative")


def agree(sentence: str, *, plural: bool) -> str:
    """Choose the verbs that agree with the subject, and contract prepositions with articles: "in dem" is "im"."""
    sentence = re.sub(r"\b(von [\w .-]+) und von ", r"\1 und ", sentence)
    sentence = re.sub(r"<(\w+)/(\w+)>", r"\2" if plural else r"\1", sentence)
    for long, short in CONTRACTIONS.items():
        sentence = re.sub(rf"\b{long}\b", short, sentence)
        sentence = re.sub(rf"\b{long.capitalize()}\b", short.capitalize(), sentence)
    return sentence


# Slots.


def pinyin(characters: str) -> str:
    """Spell a Chinese given name: 晓明 is Xiaoming."""
    return "".join(SYLLABLES[character] for character in characters).capitalize()


def draw_chinese(rng: Random) -> Name:
    """Make up a Chinese person."""
    surname, given = pick(rng, NAMES["Chinese surname"]), pick(rng, GIVEN.split())
    name = f"{surname.en} {pinyin(given)}"
    return Name(name, name, surname.zh + given)


def draw_western(rng: Random) -> Name:
    """Make up a person whose name Chinese transcribes."""
    first, surname = pick(rng, NAMES["Western first"]), pick(rng, NAMES["Western surname"])
    return Name(f"{first.en} {surname.en}", f"{first.de} {surname.de}", f"{first.zh}·{surname.zh}")


def draw_titled(rng: Random) -> Name:
    """Make up a person with a title and a surname."""
    western = rng.random() < 0.5
    surname = pick(rng, NAMES["Western surname" if western else "Chinese surname"])
    title = pick(rng, TITLES if western else TITLES[:-1])
    return Name(*(part.format(word) for part, word in zip(title, surname, strict=True)))


def draw_date(rng: Random, kind: str) -> Name:
    """Choose a day of some month, a month of some year, or a date."""
    month, day, year = pick(rng, NAMES["month"]), between(rng, 1, 28), between(rng, 1950, 2024)
    number = month.zh.split("/")[0]
    if kind == "day":
        return Name(f"{month.en} {day}", f"{day}. {month.de}", f"{number}{day}日")
    if kind == "era":
        return Name(f"{month.en} {year}", f"{month.de} {year}", f"{year}年{number}")
    return Name(f"{month.en} {day}, {year}", f"{day}. {month.de} {year}", f"{year}年{number}{day}日")


def draw(rng: Random, kind: str) -> Name:
    """Fill a slot, with one of the ways to write the name."""
    if kind in ("day", "era", "date"):
        return draw_date(rng, kind)
    if kind == "year":
        return Name(*[str(between(rng, 1950, 2024))] * 3)
    if kind == "person":
        return pick(rng, (draw_chinese, draw_western))(rng)
    if kind in ("chinese", "western", "titled"):
        return {"chinese": draw_chinese, "western": draw_western, "titled": draw_titled}[kind](rng)
    part = pick(rng, POOLS[kind]) if kind == "city" else kind
    name = pick(rng, NAMES[part])
    return Name(*(pick(rng, way.split("/")) for way in name))


def draw_all(rng: Random, template: Name) -> dict[str, Name]:
    """Fill all slots of a template, with no name twice."""
    slots = dict.fromkeys((kind, number) for kind, number, _ in SLOT.findall(template.en))
    names = {kind + number: draw(rng, kind) for kind, number in slots}
    people = [name.en.split()[-1] for slot, name in names.items() if slot.rstrip("23") in KNOWN]  # Joe Biden is Biden
    for keys in (people, [name.en for name in names.values()], [name.zh for name in names.values()]):
        if len(set(keys)) < len(keys):
            return draw_all(rng, template)
    return names


def fill(template: Name, names: dict[str, Name]) -> Name:
    """Put the names into the slots, a sentence's first letter in upper case."""
    english = SLOT.sub(lambda slot: names[slot[1] + slot[2]].en, template.en)
    english = re.sub(r"\ba (?=[AEIO](?!uro)|Uzb)", "an ", english)
    german = SLOT.sub(lambda slot: in_german(names[slot[1] + slot[2]], slot[3] or ""), template.de)
    german = agree(german, plural=next(iter(names.values())).de.startswith("pl "))
    chinese = SLOT.sub(lambda slot: names[slot[1] + slot[2]].zh, template.zh)
    if template.zh.endswith(("。", "？", "”")):
        english, german = english[0].upper() + english[1:], german[:1].upper() + german[1:]
    return Name(english, german, chinese)


def make(rng: Random, count: int, sentences: Sequence[Name], language: str) -> list[tuple[str, str]]:
    """Make that many different pairs of English and the language, a field of Name."""
    sentences = [template for template in sentences for _ in range(3 if MANY.search(template.en) else 1)]
    made: dict[tuple[str, str], None] = {}
    while len(made) < count:
        template = pick(rng, PHRASES if rng.random() < PHRASE_SHARE else sentences)
        filled = fill(template, draw_all(rng, template))
        made[filled.en, getattr(filled, language)] = None
    return list(made)


def main(folder: Path) -> None:
    """Write the pairs."""
    for prefix, language, sentences in (("german", "de", SENTENCES), ("chinese", "zh", SENTENCES + CHINESE_SENTENCES)):
        pairs = make(Random(SEEDS[prefix]), PAIRS[prefix], sentences, language)
        write(folder, f"{prefix}-names", ("en", language), pairs)


if __name__ == "__main__":
    run(main, __doc__)
