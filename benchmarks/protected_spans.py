"""How many spans that must not change are kept: in generated sentences, in four directions, and what plain text loses.

    python benchmarks/protected_spans.py heedful/box/en-de-zh --sentences 10000 --data newstest --write 2026-11-18

Sentences are made of templates in English, German and Chinese, whose slots are filled at random, always alike: URLs, e-mail
addresses, paths, placeholders, tags, entities, code, emoji, hashtags, mentions, base64, hashes, time codes. A span is kept if
the translation has it exactly as often as the source, byte for byte; with and without protection. `--data`: a folder with
FLORES and newstest files, whose BLEU is then reported both ways, and how many translations of lines without spans differ.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import random
import re
import string
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provenance import provenance, public

from heedful import Translator
from heedful.decoding.engines.interface import Job, Outcome
from heedful.decoding.protection import FORMS
from heedful.evaluation.score import score
from heedful.text.protected_spans import find_spans

RESULTS = Path(__file__).resolve().parent / "results"
DIRECTIONS = (("en", "de"), ("de", "en"), ("en", "zh"), ("zh", "en"))
TESTS = {
    ("en", "de"): (
        ("newstest2014.en-de.en", "newstest2014.en-de.de"),
        ("flores200-devtest.en", "flores200-devtest.de"),
    ),
    ("de", "en"): (
        ("newstest2014.en-de.de", "newstest2014.en-de.en"),
        ("flores200-devtest.de", "flores200-devtest.en"),
    ),
    ("en", "zh"): (("flores200-devtest.en", "flores200-devtest.zh"),),
    ("zh", "en"): (
        ("newstest2017.zh-en.zh", "newstest2017.zh-en.en"),
        ("flores200-devtest.zh", "flores200-devtest.en"),
    ),
}
WORDS = "anna report data index user order invoice main test image backup config setup list mail page item shop blog".split()
ENDINGS = "txt md py json yaml csv pdf png html log docx zip tar.gz ini".split()
EMOJI = ("😀 😂 🎉 🚀 👍 👍🏽 🙏🏿 ❤️ ☕ ✅ ⚠️ 👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪 🇨🇳 🇺🇳 1️⃣ #️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ✌🏻 ☀️ 🐈‍⬛ ❤️‍🔥 🧑‍🚀 🥐 ⭐ ➡️ ™️").split()
TAGS = (
    ("<b>", "</b>"),
    ("<i>", "</i>"),
    ("<em>", "</em>"),
    ('<span class="x">', "</span>"),
    ('<a href="/help">', "</a>"),
)

# Slots are kinds of spans; {tag} … {/tag} are a pair around words.
TEMPLATES = {
    "en": """
Visit {url} for more information.|You can find the report at {url} or at {url}.|Please send your order to {email} by Friday.
Write to {email} or {email} if you have any questions.|The settings are stored in {path}.|Copy {path} to {path} and start again.
Hello {placeholder}, welcome back!|{placeholder} was not found in {path}.|You have {placeholder} new messages from {placeholder}.
The value of {placeholder} must be between {placeholder} and {placeholder}.|Click {tag}Save{/tag} to keep your changes.
This is a {tag}very important{/tag} message for all {tag}members{/tag}.|Research{entity}development is expensive.
Use the command {code} to install the program.|Call {code} before {code}, then look at {url}.|I love this city {emoji}
That was a wonderful evening {emoji} and we will come back {emoji}|Happy birthday {emoji}!|See you at {hashtag} next week.
Thanks to {mention} and {mention} for the great talk! {hashtag} {hashtag}|{mention} I could not agree more {emoji}
The checksum of the file is {hash}.|The key {hash} was changed in commit {hash}.|The encoded text is {base64}.
At {time} the music begins.|Between {time} and {time} nobody speaks.|Download {path} from {url} and mail it to {email}.
Open {url}, log in as {placeholder}, and upload {path} before {time}.|More information: {url}|Is {url} still online?
Our address has changed (see {url}).|"{placeholder}" is not a valid name.|The server {address} does not answer.
{emoji} New: the shop is open again|<p>The weather is fine today.</p>|{url}|{email}	{path}	twelve pieces|Name:	{placeholder}	{emoji}
We moved from {url} to {url} last year, so please update {path} and tell {mention}.|Do not reply to this e-mail.{html}Thank you.
""",
    "de": """
Weitere Informationen finden Sie unter {url}.|Den Bericht gibt es unter {url} oder unter {url}.|Bitte senden Sie Ihre Bestellung bis Freitag an {email}.
Schreiben Sie an {email} oder {email}, wenn Sie Fragen haben.|Die Einstellungen stehen in {path}.|Kopieren Sie {path} nach {path} und starten Sie neu.
Hallo {placeholder}, willkommen zurück!|{placeholder} wurde in {path} nicht gefunden.|Sie haben {placeholder} neue Nachrichten von {placeholder}.
Der Wert von {placeholder} muss zwischen {placeholder} und {placeholder} liegen.|Klicken Sie auf {tag}Speichern{/tag}, um die Änderungen zu behalten.
Das ist eine {tag}sehr wichtige{/tag} Nachricht für alle {tag}Mitglieder{/tag}.|Forschung{entity}Entwicklung ist teuer.
Mit dem Befehl {code} wird das Programm installiert.|Rufen Sie erst {code} und dann {code} auf, siehe {url}.|Ich liebe diese Stadt {emoji}
Das war ein schöner Abend {emoji} und wir kommen wieder {emoji}|Alles Gute zum Geburtstag {emoji}!|Wir sehen uns nächste Woche bei {hashtag}.
Danke an {mention} und {mention} für den tollen Vortrag! {hashtag} {hashtag}|{mention} Da bin ich ganz deiner Meinung {emoji}
Die Prüfsumme der Datei ist {hash}.|Der Schlüssel {hash} wurde im Commit {hash} geändert.|Der kodierte Text lautet {base64}.
Um {time} beginnt die Musik.|Zwischen {time} und {time} spricht niemand.|Laden Sie {path} von {url} herunter und schicken Sie es an {email}.
Öffnen Sie {url}, melden Sie sich als {placeholder} an und laden Sie {path} vor {time} hoch.|Mehr dazu: {url}|Ist {url} noch erreichbar?
Unsere Adresse hat sich geändert (siehe {url}).|„{placeholder}“ ist kein gültiger Name.|Der Server {address} antwortet nicht.
{emoji} Neu: Der Laden ist wieder offen|<p>Das Wetter ist heute schön.</p>|{url}|{email}	{path}	zwölf Stück|Name:	{placeholder}	{emoji}
Wir sind letztes Jahr von {url} nach {url} umgezogen, bitte passen Sie {path} an und sagen Sie es {mention}.|Bitte nicht antworten.{html}Danke.
""",
    "zh": """
更多信息请访问{url}。|报告可以在 {url} 或 {url} 找到。|请在星期五之前把订单发送到{email}。|如有问题，请写信给 {email} 或 {email}。
设置保存在 {path} 中。|把 {path} 复制到 {path}，然后重新启动。|{placeholder}，您好，欢迎回来！|在 {path} 中找不到 {placeholder}。
您有{placeholder}条来自{placeholder}的新消息。|{placeholder} 的值必须在 {placeholder} 和 {placeholder} 之间。|点击{tag}保存{/tag}以保留更改。
这是给所有{tag}会员{/tag}的{tag}非常重要{/tag}的消息。|研究{entity}开发非常昂贵。|使用命令 {code} 安装程序。|先调用 {code}，再调用 {code}，参见 {url}。
我爱这座城市{emoji}|真是一个美好的夜晚{emoji}我们还会再来{emoji}|生日快乐{emoji}！|下周在 {hashtag} 见。
感谢 {mention} 和 {mention} 的精彩演讲！ {hashtag} {hashtag}|{mention} 我完全同意{emoji}|文件的校验和是 {hash}。
密钥 {hash} 在提交 {hash} 中被更改。|编码后的文本是 {base64}。|音乐在 {time} 开始。|在 {time} 和 {time} 之间没有人说话。
从 {url} 下载 {path}，然后发邮件到 {email}。|打开 {url}，以 {placeholder} 身份登录，并在 {time} 之前上传 {path}。|更多信息：{url}
{url} 还能访问吗？|我们的地址变了（见 {url}）。|“{placeholder}”不是有效的名称。|服务器 {address} 没有响应。|{emoji} 新消息：商店又开门了
<p>今天天气很好。</p>|{url}|{email}	{path}	十二个|姓名：	{placeholder}	{emoji}|我们去年从 {url} 搬到了 {url}，请更新 {path} 并告诉 {mention}。
请不要回复此邮件。{html}谢谢。
""",
}


# Text without spans, into which some are put at random places.
PROSE = {
    "en": """
The train leaves in ten minutes.|My sister lives in a small town near the sea.|We should discuss the plan before the meeting on Monday.
The committee has not yet reached a decision.|If it rains tomorrow, the match will be cancelled.|She opened the window because it was too warm.
Many people lost their homes in the flood.|The new law comes into force next year.|Could you please turn off the light?
He said that he had never seen such a large crowd.|The museum is closed on public holidays.|Everything was ready, but nobody came.
Please read the instructions carefully before you start the machine.|The price of bread has doubled since last summer.|What do you want for dinner?
""",
    "de": """
Der Zug fährt in zehn Minuten ab.|Meine Schwester wohnt in einer kleinen Stadt am Meer.|Wir sollten den Plan vor der Sitzung am Montag besprechen.
Der Ausschuss hat noch keine Entscheidung getroffen.|Wenn es morgen regnet, fällt das Spiel aus.|Sie öffnete das Fenster, weil es zu warm war.
Viele Menschen haben bei der Flut ihr Zuhause verloren.|Das neue Gesetz tritt nächstes Jahr in Kraft.|Könnten Sie bitte das Licht ausmachen?
Er sagte, er habe noch nie so viele Leute gesehen.|An Feiertagen ist das Museum geschlossen.|Alles war bereit, aber niemand kam.
Lesen Sie die Anleitung sorgfältig, bevor Sie die Maschine einschalten.|Der Brotpreis hat sich seit dem letzten Sommer verdoppelt.|Was möchtest du zum Abendessen?
""",
    "zh": """
火车十分钟后开。|我姐姐住在海边的一个小镇上。|我们应该在星期一开会之前讨论这个计划。|委员会还没有作出决定。|如果明天下雨，比赛就会取消。
因为太热，她打开了窗户。|许多人在洪水中失去了家园。|新法律明年生效。|请你把灯关掉好吗？|他说他从来没有见过这么多人。
博物馆在公共假日关闭。|一切都准备好了，但没有人来。|启动机器之前请仔细阅读说明书。|自去年夏天以来，面包的价格翻了一番。|你晚饭想吃什么？
""",
}
ANYWHERE = "url email path placeholder code emoji hashtag mention hash base64 time address".split()


class Spans:
    """Random spans of every kind, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tag = ("", "")

    def word(self) -> str:
        return self.random.choice(WORDS)

    def text(self, characters: str, length: int) -> str:
        return "".join(self.random.choice(characters) for _ in range(length))

    def url(self) -> str:
        host = f"{self.word()}-{self.word()}.{self.random.choice(('com', 'de', 'org', 'cn', 'co.uk', 'io'))}"
        path = "/".join(self.word() for _ in range(self.random.randint(0, 3)))
        query = self.random.choice(
            ("", "", f"?id={self.random.randint(1, 999)}", f"?q={self.word()}&lang=en", "#top", "_(x)")
        )
        start = self.random.choice(("https://", "https://", "https://www.", "http://", "www.", "ftp://"))
        return f"{start}{host}" + (f"/{path}{query}" if path else self.random.choice(("", "/")))

    def email(self) -> str:
        name = self.random.choice(
            (self.word(), f"{self.word()}.{self.word()}", f"{self.word()}+{self.word()}_{self.random.randint(1, 99)}")
        )
        return f"{name}@{self.random.choice(('beispiel', 'example', self.word()))}.{self.random.choice(('de', 'com', 'co.uk', 'cn'))}"

    def path(self) -> str:
        name = f"{self.word()}.{self.random.choice(ENDINGS)}"
        return self.random.choice(
            (
                f"/etc/{self.word()}/{name}",
                f"/home/{self.word()}/{self.word()}",
                f"~/{self.word()}/{name}",
                f"./{name}",
                f"../{self.word()}/{name}",
                f"src/{self.word()}/{name}",
                f"C:\\Users\\{self.word()}\\{name}",
                f"\\\\server\\{self.word()}\\{name}",
                name,
            )
        )

    def placeholder(self) -> str:
        word = self.word()
        return self.random.choice(
            (f"{{{word}}}", "%s", "%d", "%1$s", "%2$d", f"%({word})s", f"${{{word}}}", f"{{{{{word}}}}}", f"{{{{ {word} }}}}",
             "{0}", "{1}", "{}", f"{{{word}:.2f}}", "%.2f", "%@", f"%{word.upper()}%", f"<{word}>", f"${word.upper()}")
        )  # fmt: skip

    def entity(self) -> str:
        return self.random.choice(
            ("&amp;", "&nbsp;&amp;&nbsp;", "&#38;", " &amp; ", " &#x26; ", "&ndash;", " &mdash; ")
        )

    def code(self) -> str:
        word = self.word()
        return self.random.choice(
            (f"`{word}`", f"`pip install {word}`", f"`{word}(x, y)`", f"``{word} ` x``", f"`{word}['a']`")
        )

    def emoji(self) -> str:
        return "".join(self.random.choice(EMOJI) for _ in range(self.random.choice((1, 1, 1, 2))))

    def hashtag(self) -> str:
        return f"#{self.random.choice((self.word().title() + self.word().title(), self.word() + '2026', 'Größe', '北京', 'AI'))}"

    def mention(self) -> str:
        return f"@{self.word()}{self.random.choice(('', '_' + self.word(), str(self.random.randint(1, 99))))}"

    def hash(self) -> str:
        seed = str(self.random.random()).encode()
        digest = hashlib.sha256(seed).hexdigest()
        uuid = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
        return self.random.choice(
            (f"a{digest[:6]}1", f"{digest[:38]}f0", digest[:62] + "a1", uuid, f"sha256:{digest}", f"0x{digest[:8]}")
        )

    def base64(self) -> str:
        return base64.b64encode(self.text(string.printable[:94], self.random.randint(25, 55)).encode()).decode()

    def time(self) -> str:
        number = self.random.randint
        clock = f"{number(0, 23):02}:{number(0, 59):02}:{number(0, 59):02}"
        return self.random.choice(
            (
                f"{clock},{number(0, 999):03}",
                f"{clock}.{number(0, 999):03}",
                clock,
                f"2026-{number(1, 12):02}-11T{clock}Z",
            )
        )

    def address(self) -> str:
        return ".".join(str(self.random.randint(1, 254)) for _ in range(4)) + self.random.choice(("", ":8080"))

    def html(self) -> str:
        return self.random.choice(("<br>", "<br/>", "<br />", "</p><p>", "<!-- end -->"))

    def fill(self, template: str) -> tuple[str, list[tuple[str, str]]]:
        """A sentence of a template, and its spans with their kinds."""
        spans: list[tuple[str, str]] = []

        def one(match: re.Match[str]) -> str:
            kind = match.group(1)
            if kind == "tag":
                self.tag = self.random.choice(TAGS)
            found = {"tag": self.tag[0], "/tag": self.tag[1]}.get(kind) or getattr(self, kind.strip("/"))()
            spans.append((kind.strip("/"), found.strip()))
            return str(found)

        text = re.sub(r"\{(/?[a-z0-9]+)\}", one, template)
        spans += [("html", tag) for tag in re.findall(r"</?p>", template)]
        return text, spans

    def scattered(self, text: str, language: str) -> str:
        """A template with one to four slots at random places of a text: between words, or between any characters."""
        parts = list(text) if language == "zh" else text.split(" ")
        for _ in range(self.random.randint(1, 4)):
            space = self.random.choice((" ", "")) if language == "zh" else ""
            slot = f"{space}{{{self.random.choice(ANYWHERE)}}}{space}"
            parts.insert(self.random.randint(0, len(parts)), slot)
        return ("" if language == "zh" else " ").join(parts).strip().replace("}{", "} {")


def sentences(language: str, count: int, seed: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """Generated sentences: of every three a template, two templates together, and a text with slots at random places."""
    spans = Spans(seed)
    templates, prose = (
        [one for line in texts[language].strip().splitlines() for one in line.split("|")]
        for texts in (TEMPLATES, PROSE)
    )
    made = []
    for number in range(count):
        first, second = templates[number // 3 % len(templates)], spans.random.choice(templates)
        plain = spans.random.choice(prose)
        made.append((first, f"{first} {second}", spans.scattered(plain, language))[number % 3])
    return [spans.fill(template) for template in made]


class Counting:
    """An engine that counts what was asked of it: sentences with masks of each form, and whether the best one had all."""

    def __init__(self, engine: Any, text_of: Callable[[Sequence[int]], str]) -> None:
        self.engine, self.text_of = engine, text_of
        self.counts: Counter[str] = Counter()
        self.max_length = engine.max_length

    def decode(self, jobs: Sequence[Job], config: Any, *, align: bool, make_rule: Any) -> dict[Job, Outcome]:
        found: dict[Job, Outcome] = self.engine.decode(jobs, config, align=align, make_rule=make_rule)
        for number, form in enumerate(FORMS):
            masked = [job for job in jobs if form.read.search(job.text)]
            self.counts[f"form {number}"] += len(masked)
            for job in masked:
                wanted = Counter(form.read.findall(job.text))
                right = [
                    Counter(form.read.findall(self.text_of(h.tokens[:-1]))) == wanted for h in found[job].hypotheses
                ]
                self.counts[f"form {number} best"] += right[0]
                self.counts[f"form {number} any"] += any(right)
        return found


def is_kept(span: str, source: str, translation: str) -> bool:
    """Whether a translation has a span exactly as often as its source."""
    return translation.count(span) == source.count(span)


def measure(
    translator: Translator, count: int, *, protect: bool
) -> tuple[Counter[str], Counter[str], Counter[str], list[str]]:
    """Over all directions: spans by kind, those kept, sentences by what they needed, and examples of what was lost."""
    total: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    lost: list[str] = []
    for number, (source, target) in enumerate(DIRECTIONS):
        made = sentences(source, count // len(DIRECTIONS), seed=number + 1)
        texts = [text for text, _ in made]
        found = translator.translate(texts, source_language=source, target_language=target, protect=protect)
        for (text, spans), translation in zip(made, found, strict=True):
            fine = [is_kept(span, text, translation.text) for _, span in spans]
            fine.append(translation.text.count("\t") == text.count("\t") and "\ufffd" not in translation.text)
            for (kind, _), right in zip(spans, fine, strict=False):
                total[kind] += 1
                kept[kind] += right
            whole[f"{source}-{target}"] += all(fine)
            if not all(fine):
                lost.append(f"{source}-{target}: {text!r} → {translation.text!r}")
    return total, kept, whole, lost


def quality(translator: Translator, data: Path) -> list[str]:
    """BLEU on FLORES and newstest with and without protection, and what became of lines without spans."""
    rows = [
        "| text | lines | with spans | other lines that differ | BLEU without | BLEU with |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (source, target), files in TESTS.items():
        for name, reference in files:
            lines, wanted = ((data / one).read_text("utf-8").splitlines() for one in (name, reference))
            raw, kept = (
                [
                    one.text
                    for one in translator.translate(
                        lines, source_language=source, target_language=target, protect=protect
                    )
                ]
                for protect in (False, True)
            )
            spans = [bool(find_spans(line)) for line in lines]
            differ = sum(a != b for a, b, has in zip(raw, kept, spans, strict=True) if not has)
            blocks = [
                next(s for s in score(found, wanted, metrics=("bleu",), target_language=target)).value
                for found in (raw, kept)
            ]
            rows.append(
                f"| {name} to {target} | {len(lines):,} | {sum(spans)} | {differ} | {blocks[0]:.2f} | {blocks[1]:.2f} |"
            )
            print(rows[-1], flush=True)
    return rows


def table(plain: tuple[Counter[str], ...], guarded: tuple[Counter[str], ...], count: int) -> list[str]:
    """Spans by kind and sentences by direction, without protection and with it."""
    rows = ["| spans | in the sources | kept without | kept with |", "|---|---:|---:|---:|"]
    for kind, total in sorted(guarded[0].items()):
        rows.append(f"| {kind} | {total:,} | {plain[1][kind]:,} | {guarded[1][kind]:,} |")
    total = sum(guarded[0].values())
    rows.append(f"| all | {total:,} | {sum(plain[1].values()):,} | {sum(guarded[1].values()):,} |")
    rows += ["", "| direction | sentences | all spans kept without | with |", "|---|---:|---:|---:|"]
    for source, target in DIRECTIONS:
        name = f"{source}-{target}"
        rows.append(f"| {name} | {count // len(DIRECTIONS):,} | {plain[2][name]:,} | {guarded[2][name]:,} |")
    return rows


def steps(counts: Counter[str]) -> list[str]:
    """What the masked sentences needed."""
    asked, second = counts["form 0"], counts["form 1"]
    best, any_of, saved = counts["form 0 best"], counts["form 0 any"], counts["form 1 any"]
    rows = ["| different masked sentences | number | share |", "|---|---:|---:|"]
    steps = (
        ("all", asked),
        ("best translation has each mask once", best),
        ("another hypothesis has", any_of - best),
        ("with the second form of masks", saved),
        ("in pieces", second - saved),
    )
    return [*rows, *(f"| {name} | {number:,} | {number / max(1, asked):.1%} |" for name, number in steps)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--engine", default="native")
    parser.add_argument("--data", type=Path, help="folder with FLORES and newstest files, for BLEU")
    parser.add_argument("--write", metavar="DATE", help="write results/protected_spans_DATE_cpu.md")
    chosen = parser.parse_args()
    translator = Translator.load(chosen.model, engine=chosen.engine)
    plain = measure(translator, chosen.sentences, protect=False)
    engine, counting = translator.engine, Counting(translator.engine, translator.tokenizer.decode)
    translator.engine = counting
    guarded = measure(translator, chosen.sentences, protect=True)
    translator.engine = engine
    rows = [*table(plain[:3], guarded[:3], chosen.sentences), "", *steps(counting.counts)]
    if chosen.data:
        rows += ["", *quality(translator, chosen.data)]
    examples = guarded[3][:20]
    if examples:
        rows += ["", "Not kept with protection:", "", *(f"- {example}" for example in examples)]
    head = (
        f"# Spans that must not change\n\n{provenance()}- model: {public(str(chosen.model))}, engine {chosen.engine}\n"
    )
    page = "\n".join([head, *rows, ""])
    print(page)
    if chosen.write:
        (RESULTS / f"protected_spans_{chosen.write}_cpu.md").write_text(page, encoding="utf-8")
    sys.exit(bool(examples))


if __name__ == "__main__":
    main()
