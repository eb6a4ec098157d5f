"""Sentence forms of the game in Chinese; our own wording."""

from __future__ import annotations

from memory.bench.data.language import Forms

CONTEXT_WORDS: dict[str, tuple[str, ...]] = {"work": ("工作", "work"), "personal": ("私事", "personal")}
FORMS = Forms(
    stated=(
        "{lead}关于{topic}：{marker}。",
        "{lead}说到{topic}，请{marker}。",
        "{lead}{marker}，{topic}我就喜欢这样。",
    ),
    announced=(
        "{lead}{topic}我改主意了：从现在起，{marker}。",
        "{lead}{topic}有新规矩，今天开始{marker}。",
    ),
    plain=("{lead}至于{topic}，{marker}。", "{lead}{marker}，{topic}就这么来。"),
    reverted=("{lead}{topic}还是回到原来那样：{marker}。", "{lead}{topic}以前的办法更好，照旧{marker}。"),
    corrected=("{lead}不是这样。下次{marker}。", "{lead}你没明白我要什么。一开始就{marker}。"),
    complaint=("这样不合适。", "我不喜欢这样。", "请再来一次。"),
    hearsay=(
        "{person}总让助手{marker}。各人有各人的习惯。",
        "我听见{person}说：{marker}。不是我的风格。",
    ),
    exception=("只有{matter}这一次，{marker}。仅此一回。",),
    disowned=("各人有各人的习惯", "不是我的风格", "这一次", "仅此一回"),
    filler=(
        "{person}来过电话之后，{matter}怎么样了？",
        "记一下，{person}把{matter}的会改到星期四了。",
        "我和{person}为{matter}争了一个钟头。",
        "月底之前{matter}还剩什么？",
        "{person}发了很长的消息讲{matter}，存起来。",
        "把{matter}加进清单，告诉{person}已经排上了。",
        "{matter}的通知误发给了{person}。",
        "把{matter}去年的数字和这些比一比。",
    ),
    named=("这次注意{topic}。{request}", "别忘了{topic}的事。{request}"),
    not_mine=("谁要那样了？这里我从没说过。", "那一套在这里用不上。"),
    leads={"work": ("工作上：", "工作方面，"), "personal": ("私事上：", "私事方面，")},
    life={
        "work": ("在办公桌前，两个会之间。", "去见客户的火车上。", "晚上还在办公室。"),
        "personal": ("晚饭后在家。", "和家人在外面。", "悠闲的星期六早上。"),
    },
    scenarios={"work": ("规划", "往来信件", "复盘"), "personal": ("家务", "休闲", "家人")},
    neutral_reply="情况如下。",
    replies=("明白。", "好的，记下了。", "完成。", "我写下来了。", "会的。", "好，我会记着。"),
    lead_in="说到这件事。",
)
