"""Write synthetic English-Chinese sentence pairs that teach how large numbers are written.

English counts in thousands (million, billion, trillion), Chinese in ten-thousands (万, 亿, 万亿). Every pair fills a
template with the same value on both sides, each written the way its language writes it. The output depends on
nothing outside this folder.

Usage: python3 synthetic_numbers.py OUT    writes OUT/numbers.en and OUT/numbers.zh
"""

import re
from pathlib import Path
from random import Random
from typing import NamedTuple

from synthetic import between, pick, run, write

PAIRS = 40_000
SEED = 10_000
PHRASE_SHARE = 0.10  # of the pairs: bare numbers and short phrases
HEDGE_SHARE = 0.45  # of the numbers that can take one: "about", "more than" and their like
NUMERAL_SHARE = 0.13  # of the Chinese numbers with few digits: 三万五千
DIGITS_SHARE = 0.25  # of the other Chinese numbers from ten thousand to a million: 35000


class Pair(NamedTuple):
    """The same text in both languages."""

    en: str
    zh: str


def pairs(text: str) -> list[Pair]:
    """Read alternating English and Chinese lines; empty lines do not count."""
    lines = [line for line in text.splitlines() if line]
    return [Pair(en, zh) for en, zh in zip(lines[::2], lines[1::2], strict=True)]


def glossary(text: str) -> list[Pair]:
    """Read "English=Chinese" entries separated by commas or line ends."""
    entries = [entry.strip() for entry in re.split(r"[,\n]", text)]
    return [Pair(*entry.split("=")) for entry in entries if entry]


# What fills the slots that are not numbers.

WORDS = {
    "city": glossary("""
        Beijing=北京, Shanghai=上海, Shenzhen=深圳, Guangzhou=广州, Chengdu=成都, Wuhan=武汉, Xi'an=西安, Hangzhou=杭州
        London=伦敦, Paris=巴黎, Berlin=柏林, Madrid=马德里, Rome=罗马, Vienna=维也纳, Moscow=莫斯科
        Istanbul=伊斯坦布尔, New York=纽约, Chicago=芝加哥, Los Angeles=洛杉矶, Toronto=多伦多, Sydney=悉尼
        Tokyo=东京, Osaka=大阪, Seoul=首尔, Bangkok=曼谷, Singapore=新加坡, Jakarta=雅加达, Mumbai=孟买, Dubai=迪拜
        Cairo=开罗, Lagos=拉各斯, Nairobi=内罗毕, Cape Town=开普敦, Buenos Aires=布宜诺斯艾利斯
        Lima=利马, Mexico City=墨西哥城
    """),
    "country": glossary("""
        China=中国, Japan=日本, South Korea=韩国, India=印度, Pakistan=巴基斯坦, Indonesia=印度尼西亚, Vietnam=越南
        Thailand=泰国, Malaysia=马来西亚, Australia=澳大利亚, New Zealand=新西兰, Canada=加拿大, Mexico=墨西哥
        Brazil=巴西, Argentina=阿根廷, Chile=智利, Britain=英国, France=法国, Germany=德国, Italy=意大利, Spain=西班牙
        Poland=波兰, Sweden=瑞典, Norway=挪威, Switzerland=瑞士, Greece=希腊, Turkey=土耳其, Russia=俄罗斯
        Ukraine=乌克兰, Egypt=埃及, Nigeria=尼日利亚, Kenya=肯尼亚, Ethiopia=埃塞俄比亚, South Africa=南非
        Saudi Arabia=沙特阿拉伯, Iran=伊朗
    """),
    "province": glossary("""
        Sichuan=四川, Guangdong=广东, Henan=河南, Hunan=湖南, Hubei=湖北, Yunnan=云南, Zhejiang=浙江, Jiangsu=江苏
        Shandong=山东, Hebei=河北, Fujian=福建, Gansu=甘肃, Guizhou=贵州, Jiangxi=江西, Anhui=安徽, Shaanxi=陕西
    """),
    "company": glossary("""
        Apple=苹果公司, Microsoft=微软, Google=谷歌, Amazon=亚马逊, Intel=英特尔, Tesla=特斯拉, Boeing=波音, Airbus=空客
        Toyota=丰田, Honda=本田, Sony=索尼, Samsung=三星, Volkswagen=大众, Siemens=西门子, Bosch=博世, Nokia=诺基亚
        Huawei=华为, Xiaomi=小米, Tencent=腾讯, Alibaba=阿里巴巴, Lenovo=联想, BYD=比亚迪, Unilever=联合利华, IKEA=宜家
    """),
    "carmaker": glossary("""
        Toyota=丰田, Honda=本田, Volkswagen=大众, BMW=宝马, Ford=福特, Tesla=特斯拉, BYD=比亚迪, Nissan=日产
        Hyundai=现代汽车, Volvo=沃尔沃, Geely=吉利, Renault=雷诺
    """),
    "surname": glossary("""
        Wang=王, Li=李, Zhang=张, Liu=刘, Chen=陈, Yang=杨, Zhao=赵, Huang=黄, Zhou=周, Wu=吴, Smith=史密斯, Brown=布朗
        Johnson=约翰逊, Williams=威廉姆斯, Miller=米勒, Davis=戴维斯, Wilson=威尔逊, Taylor=泰勒, Martin=马丁
        Garcia=加西亚
    """),
    "title": [Pair("Mr. {}", "{}先生"), Pair("Ms. {}", "{}女士")],
    "month": glossary("""
        January=1月, February=2月, March=3月, April=4月, May=5月, June=6月, July=7月, August=8月, September=9月
        October=10月, November=11月, December=12月
    """),
    "quarter": glossary("first=第一, second=第二, third=第三, fourth=第四"),
    "crop": glossary("""
        wheat=小麦, rice=大米, corn=玉米, soybeans=大豆, coffee=咖啡, cotton=棉花, potatoes=土豆, tea=茶叶
    """),
    "metal": glossary("steel=钢铁, copper=铜, aluminum=铝, coal=煤炭, iron ore=铁矿石, cement=水泥"),
    "disaster": glossary("earthquake=地震, flood=洪水, typhoon=台风, storm=暴风雨, wildfire=山火"),
}

CURRENCIES = [
    Pair("${}", "{}美元"),
    Pair("${}", "{}美元"),
    Pair("{} US dollars", "{}美元"),
    Pair("{} yuan", "{}元"),
    Pair("{} yuan", "{}元"),
    Pair("{} yuan", "{}元人民币"),
    Pair("€{}", "{}欧元"),
    Pair("{} euros", "{}欧元"),
    Pair("£{}", "{}英镑"),
    Pair("{} pounds", "{}英镑"),
    Pair("{} yen", "{}日元"),
]

FEWER = Pair("fewer than {}", "不到{}")  # "less than" where the number is no count
LARGER = Pair("more than {}", "{}多")  # its place in Chinese depends on the number
HEDGES = [
    Pair("about {}", "约{}"),
    Pair("about {}", "约{}"),
    Pair("about {}", "大约{}"),
    Pair("nearly {}", "近{}"),
    Pair("nearly {}", "近{}"),
    Pair("more than {}", "超过{}"),
    Pair("more than {}", "逾{}"),
    Pair("over {}", "超过{}"),
    LARGER,
    LARGER,
    Pair("at least {}", "至少{}"),
    FEWER,
]

# The templates. A slot names its kind; a 2 after the kind marks a second slot of that kind. The English side gives the
# range of a number as powers of ten: {count:4-6} has five to seven digits.
#
#   exact    a number as it is                      money    a sum in some currency, perhaps with a hedge
#   count    of things, perhaps with a hedge        sum      a sum in some currency as it is
#   measure  of a quantity, perhaps with a hedge    low high two numbers, the second larger (high takes no range)
#   share    a percentage                           few      a number from 11 to 60

PHRASES = pairs("""
{exact:3-12}
{exact}
{exact:4-10}
{exact}
{count:4-10}
{count}
{count:3-9} people
{count}人
{count:4-8} users
{count}名用户
{count:3-7} students
{count}名学生
{count:3-7} workers
{count}名工人
{count:3-6} visitors a day
每天{count}名游客
{money:3-12}
{money}
{sum:4-12}
{sum}
{measure:4-9} tons of {metal}
{measure}吨{metal}
{measure:3-7} square kilometers
{measure}平方公里
{measure:4-11} years ago
{measure}年前
{count:4-9} copies
{count}份
{count:3-7} vehicles
{count}辆汽车
{count:4-8} households
{count}户家庭
{measure:3-8} kilometers
{measure}公里
a population of {measure:4-9}
人口{measure}
a loss of {sum:5-11}
亏损{sum}
a budget of {sum:5-12}
{sum}的预算
{count:4-9} views
{count}次观看
{count:4-8} hectares of forest
{count}公顷森林
""")

SENTENCES = pairs("""
{city} has a population of {measure:5-7}.
{city}有{measure}人口。
The population of {country} will reach {exact:6-8} by {future}.
到{future}年，{country}人口将达到{exact}。
The population of {country} grew from {low:6-8} to {high} in {few} years.
{few}年间，{country}人口从{low}增长到{high}。
In {year}, {count:5-8} people in {country} lived below the poverty line.
{year}年，{country}有{count}人生活在贫困线以下。
{province} Province has {count:6-7} inhabitants, {share} of whom live in cities.
{province}省有{count}名居民，其中{share}居住在城市。
China has a population of {measure:9-9}.
中国有{measure}人口。
{measure:6-8} people speak this language worldwide.
全世界有{measure}人讲这种语言。
The number of people aged over 65 rose to {exact:6-8}, or {share} of the total population.
65岁以上人口增至{exact}，占总人口的{share}。
The village had only {exact:3-3} residents in {old}, but today it is a city of {measure:5-7} people.
{old}年，这个村庄只有{exact}名居民，而如今它已是一座拥有{measure}人口的城市。
Every year, {count:4-6} young people leave the countryside and move to {city}.
每年都有{count}名年轻人离开农村，前往{city}。
{count:6-9} people around the world still have no access to clean drinking water.
全世界仍有{count}人喝不上干净的饮用水。
By the end of {month}, {count:4-7} refugees had crossed the border into {country}.
截至{month}底，有{count}名难民越过边境进入{country}。
The region is home to {count:4-8} people.
该地区居住着{count}人。
According to the census of {year}, {exact:5-8} people live in the region, and {share} of them speak two languages.
根据{year}年的人口普查，该地区有{exact}人，其中{share}会说两种语言。

The country covers an area of {measure:4-6} square kilometers.
该国面积{measure}平方公里。
The lake covers {measure:3-4} square kilometers and supplies water to {count:5-7} people.
该湖面积{measure}平方公里，为{count}人供水。
{country} has {measure:3-4} kilometers of coastline.
{country}拥有{measure}公里的海岸线。
The desert has grown by {measure:3-5} square kilometers since {year}.
自{year}年以来，沙漠面积扩大了{measure}平方公里。
The river is {measure:3-3} kilometers long, and {count:6-8} people live along its banks.
这条河长{measure}公里，沿岸居住着{count}人。
The national park covers {measure:4-6} hectares.
这座国家公园占地{measure}公顷。
The fire destroyed {measure:3-6} hectares of forest in the north of {country}.
大火烧毁了{country}北部{measure}公顷森林。
The island attracts {count:4-7} tourists every year.
这座岛每年吸引{count}名游客。
The mountain is {exact:3-3} meters high.
这座山高{exact}米。

{company} made a profit of {sum:6-10} in {year}.
{company}在{year}年盈利{sum}。
{company} reported revenue of {sum:8-11}, up {share} from a year earlier.
{company}公布营收为{sum}，同比增长{share}。
{company}'s net profit fell {share} to {sum:7-10} in the {quarter} quarter.
{quarter}季度，{company}净利润下降{share}，至{sum}。
{company} plans to invest {money:7-11} in {country}.
{company}计划在{country}投资{money}。
{company} will cut {count:3-5} jobs, or {share} of its workforce.
{company}将裁员{count}人，占员工总数的{share}。
{company} employs {count:4-6} people in {few} countries.
{company}在{few}个国家拥有{count}名员工。
The company was sold for {money:6-11} in {month} {year}.
该公司于{year}年{month}以{money}的价格出售。
{company} is building a new factory in {city} at a cost of {money:7-10}.
{company}正在{city}建设一座新工厂，耗资{money}。
The new plant will create {count:3-5} jobs.
新工厂将创造{count}个就业岗位。
The market value of {company} exceeded {sum:10-12} for the first time.
{company}的市值首次突破{sum}。
The start-up raised {money:5-9} from investors in {city}.
这家初创公司从{city}的投资者那里筹集了{money}。
The bank lost {money:6-10} in the financial crisis.
这家银行在金融危机中损失了{money}。
The group owes its creditors {money:7-11}.
该集团欠债权人{money}。
{company} paid a fine of {sum:5-10}.
{company}支付了{sum}的罚款。
Sales rose from {low:5-8} units to {high} units in one year.
销量在一年内从{low}台增至{high}台。
{company} said on {date}, that it had sold {count:5-8} phones in the {quarter} quarter.
{company}在{date}表示，其{quarter}季度售出了{count}部手机。
Last year the firm's sales amounted to {sum:6-11}, of which {share} came from {country}.
去年，该公司的销售额为{sum}，其中{share}来自{country}。
The deal is worth {money:6-11}.
这笔交易价值{money}。
{country} has {count:5-7} small businesses, and together they employ {count2:6-8} people.
{country}有{count}家小企业，它们总共雇用了{count2}人。

The government will spend {money:8-12} on infrastructure over the next five years.
政府将在未来五年内投入{money}用于基础设施建设。
The defense budget of {country} rose {share} to {sum:9-11}.
{country}的国防预算增长{share}，达到{sum}。
The national debt of {country} has reached {sum:10-12}.
{country}的国债已达到{sum}。
The city of {city} has set aside {money:5-9} for new schools.
{city}市为新建学校拨款{money}。
{country}'s gross domestic product reached {sum:11-12} in {year}, an increase of {share}.
{year}年，{country}国内生产总值达到{sum}，增长{share}。
The budget deficit amounts to {sum:8-12}, or {share} of gross domestic product.
预算赤字为{sum}，占国内生产总值的{share}。
Parliament approved an aid package worth {sum:7-11}.
议会批准了一项价值{sum}的援助计划。
Tax revenue fell by {money:7-11} in the {quarter} quarter.
{quarter}季度税收减少了{money}。
The central bank injected {sum:9-12} into the financial system on {date}.
{date}，央行向金融体系注入{sum}。
Foreign exchange reserves rose from {low:10-11} dollars to {high} dollars.
外汇储备从{low}美元增至{high}美元。
The European Union has pledged {money:7-10} to help {country}.
欧盟已承诺提供{money}帮助{country}。
The pension reform will save the state {money:7-10} a year.
养老金改革每年将为国家节省{money}。

The average annual salary is {exact:4-5} yuan.
平均年薪为{exact}元。
{person} earns {money:3-5} a month.
{person}每月挣{money}。
The apartment in {city} costs {money:5-7}.
{city}的这套公寓售价{money}。
The car costs {exact:4-6} yuan, which is {exact2:3-4} yuan less than last year.
这辆车售价{exact}元，比去年便宜{exact2}元。
{person} bought the painting for {sum:4-8} at an auction in {city}.
{person}在{city}的一场拍卖会上以{sum}买下了这幅画。
{person} won {sum:4-8} in the lottery.
{person}买彩票中了{sum}。
{person} donated {money:3-8} to the university.
{person}向该大学捐赠了{money}。
House prices in {city} have risen to {exact:4-5} yuan per square meter.
{city}的房价已涨至每平方米{exact}元。
Tuition costs {money:3-5} per year.
学费每年{money}。
{person} still owes the bank {money:4-7}.
{person}还欠银行{money}。
The minimum wage rose from {low:3-3} yuan to {high} yuan.
最低工资从{low}元提高到{high}元。
His fortune is estimated at {money:7-11}.
据估计，他拥有{money}的财富。
How can anyone spend {sum:4-7} on a watch?
怎么会有人花{sum}买一块手表？
The repair of the bridge cost {money:5-8}, almost twice as much as planned.
修桥花费了{money}，几乎是计划的两倍。

The app has been downloaded {count:5-9} times.
这款应用已被下载{count}次。
The platform has {count:6-9} monthly active users, {share} of whom are under 30.
该平台拥有{count}月活跃用户，其中{share}不满30岁。
The video has been viewed {count:5-9} times since {date}.
自{date}以来，该视频已被观看{count}次。
{person} has {count:4-7} followers on social media.
{person}在社交媒体上有{count}名粉丝。
The number of Internet users in {country} rose to {exact:6-8}.
{country}的互联网用户增至{exact}。
The personal data of {count:5-8} customers were stolen from {company}.
{company}的{count}名客户的个人数据被盗。
The model was trained on {count:8-12} words and has {count2:6-11} parameters.
该模型使用{count}个单词进行训练，拥有{count2}个参数。
The new chip contains {count:8-10} transistors.
这款新芯片包含{count}个晶体管。
The online shop handled {count:5-8} orders in one day.
这家网店一天处理了{count}份订单。
The game sold {exact:5-7} copies in its first week and brought in {money:6-9}.
这款游戏首周售出{exact}份，收入{money}。
Fans sent {count:5-9} messages within {few} hours.
粉丝们在{few}小时内发送了{count}条信息。

{count:4-4} fans watched the match in {city}.
{count}名球迷在{city}观看了比赛。
The stadium in {city} holds {count:4-4} spectators.
{city}的这座体育场可容纳{count}名观众。
The club paid {money:6-8} for the player.
俱乐部为这名球员支付了{money}。
The final was watched on television by {count:6-8} people in {few} countries.
{few}个国家的{count}人通过电视观看了决赛。
{exact:3-4} athletes from {few} countries took part in the games.
来自{few}个国家的{exact}名运动员参加了运动会。
{count:4-4} runners took part in the {city} marathon on {date}.
{date}，{count}名跑者参加了{city}马拉松。
The champion will receive prize money of {sum:4-6}.
冠军将获得{sum}的奖金。
The concert in {city} drew {count:3-5} people.
{city}的这场音乐会吸引了{count}人。
The film took {sum:6-9} at the box office, making it the most successful film of {year}.
这部电影的票房收入为{sum}，成为{year}年最成功的电影。
The museum welcomed {exact:4-6} visitors in {month}, {share} more than a year ago.
博物馆{month}接待游客{exact}人次，同比增长{share}。
Her latest novel has sold {count:4-7} copies and has been translated into {few} languages.
她的最新小说已售出{count}册，并被翻译成{few}种语言。

The candidate won {exact:4-7} votes, or {share} of the total.
该候选人获得{exact}张选票，占总数的{share}。
{count:4-6} people demonstrated against the government in {city}.
{count}人在{city}举行了反政府示威。
{exact:5-8} voters are registered, but only {share} went to the polls.
登记选民有{exact}人，但只有{share}参加了投票。
The petition was signed by {count:4-6} people within a week.
一周之内有{count}人在请愿书上签名。
{country} has stationed {count:3-5} soldiers on the border.
{country}在边境部署了{count}名士兵。
The strike by {count:3-6} workers paralyzed {city} for days.
{count}名工人的罢工使{city}瘫痪了数日。
The police checked {count:3-5} vehicles and imposed fines totaling {sum:4-6}.
警方检查了{count}辆汽车，罚款总额为{sum}。
The party has {count:4-7} members.
该党有{count}名党员。
In {year}, {country} took in {count:3-6} migrants.
{year}年，{country}接收了{count}名移民。

The {disaster} killed {count:3-5} people and left {count2:4-6} homeless.
这场{disaster}造成{count}人死亡，{count2}人无家可归。
The {disaster} in {country} affected {count:4-7} people.
{country}的{disaster}影响了{count}人。
{count:3-6} people in {province} Province were evacuated before the typhoon arrived.
台风到来之前，{province}省疏散了{count}人。
The {disaster} destroyed {count:3-5} houses and caused damage of {money:6-10}.
这场{disaster}摧毁了{count}座房屋，造成{money}的损失。
The storm left {count:4-6} households in {city} without electricity.
暴风雨导致{city}{count}户家庭断电。
Officials said on {month} {day} that {count:4-6} people needed food and medicine.
官员们在{month}{day}日表示，有{count}人需要食物和药品。
The war has cost {count:4-6} lives since {year}, and {count2:5-7} people have been forced to leave their homes.
自{year}年以来，这场战争已夺去{count}人的生命，{count2}人被迫离开家园。
The Red Cross delivered {measure:3-4} tons of relief supplies to {country}.
红十字会向{country}运送了{measure}吨救援物资。
Insurers expect the damage to cost {sum:7-10}.
保险公司预计损失将达{sum}。

{country} produced {measure:5-8} tons of {crop} in {year}.
{year}年，{country}生产了{measure}吨{crop}。
{country} exported {measure:4-7} tons of {metal} last year, worth {sum:6-9}.
{country}去年出口了{measure}吨{metal}，价值{sum}。
{country}'s exports to {country2} rose {share} to {sum:8-11}.
{country}对{country2}的出口增长{share}，达到{sum}。
{carmaker} built {count:4-6} cars in {year}.
{carmaker}在{year}年生产了{count}辆汽车。
{carmaker} is recalling {count:4-6} cars in {country} because of faulty brakes.
由于刹车故障，{carmaker}正在{country}召回{count}辆汽车。
Output of {metal} increased from {low:5-7} tons to {high} tons.
{metal}产量从{low}吨增加到{high}吨。
The power station supplies {count:4-6} homes with electricity.
这座发电站为{count}户家庭供电。
{country} imports {measure:5-6} barrels of oil a day.
{country}每天进口{measure}桶石油。
Trade between {country} and {country2} amounted to {sum:8-11} in {year}.
{year}年，{country}与{country2}的贸易额为{sum}。
{province} Province harvested {measure:5-7} tons of {crop}, {share} more than in the previous year.
{province}省收获了{measure}吨{crop}，比上年增长{share}。
Farmers planted {count:4-8} trees within {few} months.
农民们在{few}个月内种植了{count}棵树。
China's grain output reached {exact:8-8} tons in {year}.
{year}年，中国粮食产量达到{exact}吨。
Sales of electric cars rose {share} to {exact:4-6} in {month}.
{month}电动汽车销量增长{share}，达到{exact}辆。

The airport in {city} handled {exact:5-7} passengers in {year}, an increase of {share} over the previous year.
{year}年，{city}机场接待旅客{exact}人次，比上年增长{share}。
The subway carries {count:5-6} passengers a day.
这条地铁每天运送{count}名乘客。
The new railway is {measure:3-3} kilometers long and cost {money:8-11}.
这条新铁路长{measure}公里，耗资{money}。
There are {count:5-8} cars on the roads of {country}.
{country}的道路上有{count}辆汽车。
It is {measure:3-3} kilometers from {city} to {city2}.
从{city}到{city2}有{measure}公里。
{person} has driven {measure:4-5} kilometers in this car.
{person}驾驶这辆车行驶了{measure}公里。
The ship can carry {measure:3-5} tons of cargo.
这艘船可以装载{measure}吨货物。
In the {quarter} quarter of {year}, {count:5-7} tourists from {country} visited {country2}.
{year}年{quarter}季度，有{count}名{country}游客前往{country2}旅游。
The port of {city} handles {count:5-7} containers every year.
{city}港每年处理{count}个集装箱。

The university has {count:3-4} students, {share} of whom come from abroad.
这所大学有{count}名学生，其中{share}来自国外。
{exact:6-6} students took the college entrance examination in {year}.
{year}年，{exact}名学生参加了高考。
The library owns {count:4-6} books, including {count2:3-3} rare manuscripts.
这座图书馆藏有{count}本书，其中包括{count2}份珍贵手稿。
The study followed {count:3-5} patients over {few} years.
这项研究对{count}名患者进行了{few}年的跟踪调查。
{country} lacks {count:3-5} teachers and {count2:3-5} nurses.
{country}缺少{count}名教师和{count2}名护士。
Universities in {city} received {money:6-9} for research.
{city}的大学获得了{money}的科研经费。
The foundation has awarded scholarships to {count:3-5} students from {country} since {year}.
自{year}年以来，该基金会已向{count}名{country}学生颁发了奖学金。

The fossil is {measure:4-8} years old.
这块化石有{measure}年的历史。
The galaxy contains {count:9-11} stars.
这个星系包含{count}颗恒星。
Dinosaurs lived on this continent {measure:7-8} years ago.
{measure}年前，恐龙生活在这块大陆上。
The probe has traveled {measure:6-9} kilometers since {date}.
自{date}以来，探测器已飞行{measure}公里。
The Earth was formed {measure:9-9} years ago.
地球形成于{measure}年前。
The telescope cost {money:6-9} and took {few} years to build.
这台望远镜耗资{money}，历时{few}年建成。
The virus has infected {count:5-8} people and killed {count2:3-4} in {country}.
在{country}，这种病毒已感染{count}人，造成{count2}人死亡。
{count:4-8} children in {country} have been vaccinated since {month} {year}.
自{year}年{month}以来，{country}已有{count}名儿童接种了疫苗。
The human brain has {count:9-10} nerve cells.
人脑有{count}个神经细胞。
{count:5-8} people suffer from this disease, but only {share} of them receive treatment.
有{count}人患有这种疾病，但其中只有{share}得到治疗。
Factories emitted {measure:5-9} tons of carbon dioxide in {year}.
{year}年，工厂排放了{measure}吨二氧化碳。
A single tree can have {count:4-5} leaves.
一棵树可以有{count}片叶子。
Ships dump {measure:4-6} tons of plastic into the ocean every year.
船只每年向海洋倾倒{measure}吨塑料。

In {old}, the emperor sent {exact:3-5} soldiers to the border.
{old}年，皇帝派{exact}名士兵前往边境。
The army lost {count:3-5} men in the battle of {old}.
在{old}年的战役中，这支军队损失了{count}人。
The population of {city} was only {exact:4-5} in {old}.
{old}年，{city}的人口只有{exact}。
The plague of {old} killed {count:4-6} people in {country}.
{old}年的瘟疫在{country}造成{count}人死亡。
{count:4-5} workers built the palace, which was completed in {old}.
{count}名工人建造了这座宫殿，它于{old}年竣工。
Between {old} and {year}, {count:5-7} people emigrated from {country}.
{old}年至{year}年间，有{count}人从{country}移居国外。

{country} announced on {date}, that it would spend {money:8-11} over the next {few} years \
to build homes for {count:3-5} families who had lost everything in the {disaster}.
{country}于{date}宣布，将在未来{few}年内投入{money}，\
为{count}个在{disaster}中失去一切的家庭建造住房。
Although sales in {country} fell by {share}, {company} expects a profit of {sum:7-10} this year, \
because it won {count:4-7} new customers in {country2} and closed {few} of its oldest stores.
虽然在{country}的销售额下降了{share}，但{company}预计今年盈利{sum}，\
因为它在{country2}赢得了{count}名新客户，并关闭了{few}家最老的门店。
According to a report published in {month} {year}, {count:6-8} people in {country} have no health insurance, \
and the number of those who cannot afford a doctor rose from {low:4-6} to {high}.
根据{year}年{month}发表的一份报告，{country}有{count}人没有医疗保险，\
而看不起医生的人数从{low}上升到{high}。
The new high-speed railway between {city} and {city2}, which cost {money:8-11} and took {few} years to build, \
is expected to carry {exact:5-7} passengers a year by {future}.
连接{city}和{city2}的新高速铁路耗资{money}，历时{few}年建成，\
预计到{future}年每年将运送{exact}名乘客。
{person}, who founded the company in {year} with only {sum:3-4}, sold it last {month} for {sum2:7-10} \
and gave {share} of the money to its {count:3-5} employees.
{person}在{year}年仅用{sum}创办了这家公司，去年{month}以{sum2}将其出售，\
并把其中{share}的钱分给了{count}名员工。
Scientists have found that the number of birds in {country} fell by {share} over {few} years, \
so that there are now {exact:5-8} fewer birds in its forests than in {year}.
科学家们发现，{country}的鸟类数量在{few}年间下降了{share}，\
因此该国森林里的鸟类如今比{year}年少了{exact}只。
In the first {few} days after the {disaster}, the Red Cross handed out {count:4-6} meals, {count2:3-5} blankets \
and {measure:3-4} tons of drinking water to the people of {province} Province.
{disaster}发生后的头{few}天里，红十字会向{province}省的民众发放了{count}份餐食、\
{count2}条毛毯和{measure}吨饮用水。
The central bank said total lending reached {sum:11-12} at the end of {month}, {share} more than a year earlier, \
while household savings grew by {sum2:8-11} to a new record.
央行表示，截至{month}底，贷款总额达到{sum}，同比增长{share}，\
而居民储蓄增加了{sum2}，创下新纪录。

{share} of the respondents said they were satisfied.
{share}的受访者表示满意。
Unemployment in {country} fell to {share} in {month} {year}.
{year}年{month}，{country}的失业率降至{share}。
The economy of {country} grew by {share} in {year}, after {share2} in the previous year.
{country}经济在上一年增长{share2}之后，{year}年增长了{share}。
{person} was born on {date}.
{person}出生于{date}。
The contract was signed on {date}, and expires in {future}.
合同于{date}签署，{future}年到期。
{person} moved to {city} in {month} {year}.
{person}于{year}年{month}搬到{city}。
Prices rose by {share} in {month}.
{month}物价上涨了{share}。
The conference will take place in {city} on {month} {day}.
会议将于{month}{day}日在{city}举行。
""")

SLOT = re.compile(r"\{([a-z]+)(2?)(?::(\d+)-(\d+))?\}")


# Numbers.


def precision(value: int) -> int:
    """Count the significant digits."""
    return len(str(value).rstrip("0"))


def draw_value(rng: Random, low: int, high: int) -> int:
    """Choose a value whose power of ten lies from low to high, with one to four significant digits."""
    power = between(rng, low, high)
    digits = pick(rng, (1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4))
    return between(rng, 10 ** (digits - 1), 10**digits - 1) * 10 ** (power - digits + 1)


def draw_larger(rng: Random, value: int) -> int:
    """Choose a value up to three times as large, with at most three significant digits."""
    larger = value * between(rng, 110, 300) // 100
    step = 10 ** (len(str(larger)) - 3)
    return larger // step * step


def in_english(value: int) -> str:
    """Write 35,000 or 3.5 million, billion, trillion."""
    for unit, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:,}"


def in_chinese(rng: Random, value: int) -> str:
    """Write 3.5万, 3.5亿 or 3.5万亿; now and then 三万五千, 35000 or 35,000."""
    if precision(value) <= 2 and rng.random() < NUMERAL_SHARE:
        return in_numerals(value)
    if 10**4 <= value < 10**6 and (value % 100 or rng.random() < DIGITS_SHARE):
        return pick(rng, (f"{value}", f"{value:,}"))
    for unit, name in ((10**12, "万亿"), (10**8, "亿"), (10**4, "万")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value}"


def in_numerals(value: int) -> str:
    """Write the value in Chinese characters: 三万五千, 两百万, 十二亿."""
    text = ""
    for unit, name in ((10**8, "亿"), (10**4, "万"), (1, "")):
        section = value // unit % 10**4 if unit < 10**8 else value // unit
        if section >= 10**4:
            text += in_numerals(section) + name
        elif section:
            text += ("零" if text and section < 1000 else "") + small_numerals(section) + name
    text = re.sub("^一十", "十", text)
    return re.sub("^二(?=[百千万亿])", "两", text)


def small_numerals(value: int) -> str:
    """Write a value below ten thousand in Chinese characters, with 二 throughout."""
    digits = zip(f"{value:04}", "千百十 ", strict=True)
    text = "".join("零一二三四五六七八九"[int(digit)] + unit for digit, unit in digits)
    return re.sub("零+", "零", re.sub("零[千百十 ]", "零", text)).strip("零 ")


# Slots.


def draw_hedge(rng: Random, value: int, *, counted: bool) -> Pair:
    """Choose words such as "about" around a number, or none."""
    if precision(value) > 3 or rng.random() >= HEDGE_SHARE:
        return Pair("{}", "{}")
    hedge = pick(rng, HEDGES)
    if hedge in (LARGER, FEWER) and (precision(value) > 2 or value >= 10**12):
        return HEDGES[0]
    if hedge == FEWER and not counted:
        return Pair("less than {}", hedge.zh)
    return hedge


def hedged_chinese(hedge: Pair, number: str) -> str:
    """Put the hedge at its place: 超过30万, 3万多, but 30多万."""
    if hedge == LARGER:
        return re.sub(r"(?<=[0十百千])([万亿])$|$", r"多\1", number, count=1)
    return hedge.zh.format(number)


def draw_number(rng: Random, kind: str, low: int, high: int) -> Pair:
    """Fill a slot for a number or a sum of money."""
    value = draw_value(rng, low, high)
    hedge = (
        draw_hedge(rng, value, counted=kind == "count") if kind in ("count", "measure", "money") else Pair("{}", "{}")
    )
    currency = pick(rng, CURRENCIES) if kind in ("money", "sum") else Pair("{}", "{}")
    english = hedge.en.format(currency.en.format(in_english(value)))
    return Pair(english, currency.zh.format(hedged_chinese(hedge, in_chinese(rng, value))))


def draw_share(rng: Random) -> Pair:
    """Choose a percentage such as 12% or 3.5%."""
    number = f"{between(rng, 2, 95)}" if rng.random() < 0.6 else f"{between(rng, 11, 399) / 10:g}"
    return Pair(f"{number}%" if rng.random() < 0.7 else f"{number} percent", f"{number}%")


def draw_words(rng: Random, kind: str) -> Pair:
    """Fill a slot for a name, a date, a percentage or a small number."""
    spans = {"year": (1980, 2024), "old": (1301, 1949), "future": (2026, 2060), "day": (1, 28), "few": (11, 60)}
    if kind in spans:
        number = str(between(rng, *spans[kind]))
        return Pair(number, number)
    if kind == "share":
        return draw_share(rng)
    if kind == "date":
        month, day, year = (draw_words(rng, part) for part in ("month", "day", "year"))
        return Pair(f"{month.en} {day.en}, {year.en}", f"{year.zh}年{month.zh}{day.zh}日")
    if kind == "person":
        title, surname = draw_words(rng, "title"), draw_words(rng, "surname")
        return Pair(title.en.format(surname.en), title.zh.format(surname.zh))
    return pick(rng, WORDS[kind])


def fill(rng: Random, template: Pair) -> Pair:
    """Fill all slots of a template, a sentence's first letter in upper case."""
    filled: dict[str, Pair] = {}
    for kind, second, low, high in SLOT.findall(template.en):
        if kind == "low":
            value = draw_value(rng, int(low), int(high))
            larger = draw_larger(rng, value)
            filled["low"] = Pair(in_english(value), in_chinese(rng, value))
            filled["high"] = Pair(in_english(larger), in_chinese(rng, larger))
        elif low:
            filled[kind + second] = draw_number(rng, kind, int(low), int(high))
        elif kind != "high":
            filled[kind + second] = draw_words(rng, kind)
    if any(filled[name] == filled.get(name + "2") for name in filled):
        return fill(rng, template)
    english = SLOT.sub(lambda slot: filled[slot[1] + slot[2]].en, template.en)
    chinese = SLOT.sub(lambda slot: filled[slot[1] + slot[2]].zh, template.zh)
    if chinese.endswith(("。", "？")):
        english = english[0].upper() + english[1:]
    return Pair(english, chinese)


def main(folder: Path) -> None:
    """Write the pairs."""
    rng = Random(SEED)
    made: dict[Pair, None] = {}
    while len(made) < PAIRS:
        templates = PHRASES if rng.random() < PHRASE_SHARE else SENTENCES
        made[fill(rng, pick(rng, templates))] = None
    write(folder, "numbers", ("en", "zh"), made)


if __name__ == "__main__":
    run(main, __doc__)
