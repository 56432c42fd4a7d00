"""How a synthetic recording is described: for each attribute its levels, and for each level its phrasings.

The first phrasing is the canonical one, which the demo pair learns; the others only serve as further references for
scoring. What stands in brackets is the marker: the part by which `attributes` knows the level again. Canonical
phrasings of one attribute differ from their first word on, so that one token decides what follows it.
"""

# ruff: noqa: RUF001 - Chinese has punctuation of its own

from __future__ import annotations

from collections.abc import Mapping, Sequence

LANGUAGES = ("en", "zh")

LEVELS: Mapping[str, tuple[str, ...]] = {
    "voice": ("woman", "man"),
    "rate": ("slow", "medium", "fast"),
    "loudness": ("soft", "medium", "loud"),
    "pitch": ("low", "medium", "high"),
    "intonation": ("flat", "even", "lively"),
    "tremor": ("none", "strong"),
    "breath": ("clear", "breathy"),
    "pauses": ("none", "long"),
    "noise": ("quiet", "noisy"),
    "affect": (
        "angry",
        "excited",
        "happy",
        "surprised",
        "fearful",
        "sad",
        "bored",
        "calm",
        "tender",
        "scornful",
    ),
}
"""Attributes in the order in which a caption gives them, each with its levels."""

_EN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "voice": {"woman": ["[woman]"], "man": ["[man]"]},
    "rate": {
        "slow": [
            "[slowly], stretching every word",
            "[at a crawl], drawing the words out",
            "[without hurry], giving each word its time",
        ],
        "medium": [
            "[at a steady pace], neither rushed nor dragging",
            "[at an ordinary speed] that is easy to follow",
            "[at a moderate pace] from start to end",
        ],
        "fast": [
            "[quickly], with one word chasing the next",
            "[in a rush], hardly parting the words",
            "[at high speed], as if short of time",
        ],
    },
    "loudness": {
        "soft": [
            "[in hushed tones] that hardly carry",
            "[so softly] that one has to lean in",
            "[in a faint murmur], meant for nobody else",
        ],
        "medium": [
            "[with ordinary volume], as across a table",
            "[as loud as] in any conversation",
            "[with medium force], fit for a small room",
        ],
        "loud": [
            "[loudly] enough to fill a hall",
            "[at full volume], for all to hear",
            "[with great force], far above a conversation",
        ],
    },
    "pitch": {
        "low": [
            "[stays low] near the bottom of the range",
            "[is deep] for such a voice",
            "[sinks down] and remains there",
        ],
        "medium": [
            "[rests in the middle] of the range",
            "[is average], neither deep nor shrill",
            "[keeps to the centre] of the range",
        ],
        "high": ["[climbs high] above its usual place", "[is raised] for such a voice", "[floats far up] in the range"],
    },
    "intonation": {
        "flat": ["[hardly moves] from word to word", "[keeps to one note] almost throughout", "[runs flat] to the end"],
        "even": [
            "[follows gentle curves] along the sentence",
            "[rises and falls] only mildly",
            "[bends a little] here and there",
        ],
        "lively": ["[swings widely] up and down", "[leaps about] within each phrase", "[dances] in wide arcs"],
    },
    "tremor": {
        "none": ["[holds steady]", "[does not waver]", "[is firm]"],
        "strong": ["[trembles audibly]", "[shakes] on every vowel", "[quivers] as it goes"],
    },
    "breath": {
        "clear": ["with a [clean tone]", "with a [clear sound]", "with [little air] in it"],
        "breathy": ["through [heavy breath]", "with [much air] in it", "behind [audible breathing]"],
    },
    "pauses": {
        "none": [
            "[the words flow on] without a break",
            "[nothing interrupts] the sentence",
            "[no pause] parts the words",
        ],
        "long": [
            "[long pauses] cut the sentence apart",
            "[silences fall] between the words",
            "[gaps open] in the sentence",
        ],
    },
    "noise": {
        "quiet": ["[the room is quiet]", "[silence surrounds] it all", "[nothing else] is heard"],
        "noisy": [
            "[noise hisses] behind every word",
            "[a steady hiss] lies over it all",
            "[background noise] is heard",
        ],
    },
    "affect": {
        "angry": [
            "[furious], ready to pick a quarrel with anyone",
            "[angry] and close to a fight",
            "[full of rage] at somebody",
        ],
        "excited": [
            "[thrilled], eager to share some great news",
            "[excited] and hardly able to wait",
            "[fired up], full of what is to come",
        ],
        "happy": ["[cheerful], with a smile behind the words", "[happy] and light at heart", "[glad] about the day"],
        "surprised": [
            "[astonished], caught off guard by what has happened",
            "[surprised] beyond belief",
            "[taken aback] by the news",
        ],
        "fearful": [
            "[frightened], as though danger were near",
            "[fearful] and on guard",
            "[scared] of what may come",
        ],
        "sad": ["[sorrowful], weighed down by a loss", "[sad] and close to tears", "[downcast], with little hope"],
        "bored": [
            "[bored], without any interest in the matter",
            "[weary of it], wishing it were over",
            "[indifferent] to the matter",
        ],
        "calm": [
            "[calm], at peace with everything around",
            "[composed] and in no way troubled",
            "[relaxed], with time to spare",
        ],
        "tender": [
            "[tender], as if to comfort a child",
            "[affectionate] and warm",
            "[loving], close to somebody dear",
        ],
        "scornful": [
            "[scornful], looking down on what is said",
            "[contemptuous] of the matter",
            "[disdainful] and cold",
        ],
    },
}

_ZH: Mapping[str, Mapping[str, Sequence[str]]] = {
    "voice": {"woman": ["[女士]"], "man": ["[男士]"]},
    "rate": {
        "slow": ["[慢慢地]说，字字拖长", "[缓缓地]讲，字字都不着急", "[语速很慢]，一字一顿"],
        "medium": ["[不紧不慢]地说，节奏自然", "[以平常的速度]讲话，容易听懂", "[语速适中]，听得清楚"],
        "fast": ["[飞快地]说，一字追着一字", "[急匆匆地]讲，几乎没有间隔", "[语速很快]，像在赶时间"],
    },
    "loudness": {
        "soft": ["[轻声细语]，传不到远处", "[声音很小]，要凑近才听得见", "[低声细气]，只给自己听"],
        "medium": ["[音量平常]，像隔桌聊天", "[响度适中]，和日常谈话一样", "[音量中等]，适合小房间"],
        "loud": ["[嗓门洪亮]，传遍大厅", "[声音很大]，人人都听得见", "[用尽全力]，远远超过交谈"],
    },
    "pitch": {
        "low": ["[低沉]，停在音域底部", "[偏低]，沉在下面", "[压得很低]，一直没有上来"],
        "medium": ["[居中]，落在音域中间", "[适度]，不低也不尖", "[处在中部]，和平时一样"],
        "high": ["[高亢]，升到平时上方", "[偏高]，浮在上面", "[拔得很高]，几乎尖细"],
    },
    "intonation": {
        "flat": ["[几乎没有起伏]，从头到尾一样", "[语调平直]，没有变化", "[始终一个调子]"],
        "even": ["[起伏柔和]，随句子轻轻变化", "[语调自然]，略有升降", "[微微升降]，变化不大"],
        "lively": ["[大起大落]，高低跳得很开", "[语调多变]，忽上忽下", "[抑扬分明]，跳跃不停"],
    },
    "tremor": {
        "none": ["[很稳定]", "[没有抖动]", "[始终坚实]"],
        "strong": ["[明显颤抖]", "[抖个不停]", "[阵阵发颤]"],
    },
    "breath": {
        "clear": ["[音色干净]，少有气息", "[声音清亮]", "[吐气很少]"],
        "breathy": ["[气声很重]，像在叹气", "[夹着呼气声]", "[满是气息]"],
    },
    "pauses": {
        "none": ["[话语连贯]，没有停顿", "[一气呵成]", "[没有间断]"],
        "long": ["[停顿很长]，句子切成几段", "[时断时续]", "[中间多次沉默]"],
    },
    "noise": {
        "quiet": ["[周围安静]，没有杂音", "[背景无声]", "[四下寂静]"],
        "noisy": ["[背景嘈杂]，噪声不小", "[噪声不断]", "[伴着沙沙声]"],
    },
    "affect": {
        "angry": ["[愤怒]，像要跟人争吵", "[生气]，快要动手", "[怒气冲冲]"],
        "excited": ["[兴奋]，急着分享好消息", "[激动]，等不及了", "[热情高涨]"],
        "happy": ["[高兴]，话里带着笑意", "[快乐]，心情轻松", "[开心]，喜欢这一天"],
        "surprised": ["[惊讶]，没料到会有这种事", "[吃惊]，难以相信", "[感到意外]"],
        "fearful": ["[害怕]，仿佛危险就在眼前", "[恐惧]，处处提防", "[惊慌]，担心以后"],
        "sad": ["[悲伤]，好像失去了什么", "[难过]，快要哭了", "[伤心]，没有希望"],
        "bored": ["[无聊]，对这件事毫无兴趣", "[厌倦]，盼着早点结束", "[提不起劲]"],
        "calm": ["[平静]，心里没有一点波澜", "[镇定]，没有烦恼", "[从容]，时间充裕"],
        "tender": ["[温柔]，像在安慰孩子", "[亲切]，十分温暖", "[充满爱意]"],
        "scornful": ["[轻蔑]，看不起所说的一切", "[不屑]，冷冷的", "[鄙夷]，满不在乎"],
    },
}

PHRASES: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]] = {"en": _EN, "zh": _ZH}
"""Language, attribute, level: phrasings with their markers in brackets."""

_EN_FRAMES = (
    (
        "A {voice} speaks {rate}, {loudness}. {Her} pitch {pitch} and {intonation}. "
        "The voice {tremor} {breath}; {pauses}, and {noise}. {She} sounds {affect}."
    ),
    (
        "This {voice} talks {rate}, {loudness}. The melody {pitch}; it {intonation}. "
        "{Her} voice {tremor} {breath}, {pauses}, {noise}. The speaker seems {affect}."
    ),
)
_ZH_FRAMES = (
    (
        "一位{voice}{rate}，{loudness}。{she}的音高{pitch}，{intonation}。"
        "嗓音{tremor}，{breath}；{pauses}，{noise}。听起来{she}{affect}。"
    ),
    (
        "这位{voice}{rate}，{loudness}。音调{pitch}，{intonation}。"
        "{she}的声音{tremor}，{breath}，{pauses}，{noise}。{she}似乎{affect}。"
    ),
)
FRAMES: Mapping[str, Sequence[str]] = {"en": _EN_FRAMES, "zh": _ZH_FRAMES}
"""Whole captions; the first is the canonical one."""

PRONOUNS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "en": {
        "woman": {"She": "She", "Her": "Her"},
        "man": {"She": "He", "Her": "His"},
    },
    "zh": {"woman": {"she": "她"}, "man": {"she": "他"}},
}
