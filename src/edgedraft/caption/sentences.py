"""What synthetic speakers say: a beginning and an end of no particular feeling, between which a pause fits.

Train, dev and test share neither beginnings nor ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SENTENCES: Mapping[str, Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "en": {
        "train": (
            (
                "The train to the coast",
                "My neighbour's garden",
                "The book on the table",
                "Our meeting on Monday",
                "The letter from the bank",
                "A parcel for the office",
                "The road behind the school",
                "This old wooden chair",
                "The bridge over the river",
                "Your brother's bicycle",
                "The museum in the park",
                "A cup of black tea",
                "The second floor window",
                "His new winter coat",
            ),
            (
                "was there this morning.",
                "has changed a lot.",
                "will be ready by noon.",
                "belongs to someone else.",
                "looks rather different now.",
                "is what they talked about.",
                "came up once again.",
                "has to wait until Friday.",
                "was paid for last year.",
                "can be seen from here.",
                "turned out to be green.",
                "is on the list as well.",
                "was mentioned in the paper.",
                "needs a little more time.",
            ),
        ),
        "dev": (
            ("The key to the cellar", "Her cousin's small boat", "The menu of that place", "An answer to the question"),
            ("lies under the stone.", "did arrive after all.", "costs about ten pounds.", "stands next to the door."),
        ),
        "test": (
            ("The clock in the kitchen", "Their visit to the farm", "A basket full of apples", "The map of the valley"),
            ("went to the other side.", "stays with us tonight.", "began at half past six.", "fell off the shelf."),
        ),
    },
    "zh": {
        "train": (
            (
                "去海边的火车",
                "邻居家的花园",
                "桌子上的那本书",
                "星期一的会议",
                "银行寄来的信",
                "给办公室的包裹",
                "学校后面的路",
                "这把旧木椅子",
                "河上的那座桥",
                "你哥哥的自行车",
                "公园里的博物馆",
                "一杯红茶",
                "二楼的窗户",
                "他的新大衣",
            ),
            (
                "今天早上还在那里。",
                "变了很多。",
                "中午以前会准备好。",
                "是别人的东西。",
                "现在看起来不一样了。",
                "就是他们谈的事情。",
                "又一次出现了。",
                "要等到星期五。",
                "去年已经付过钱了。",
                "从这里可以看到。",
                "原来是绿色的。",
                "也写在单子上。",
                "报纸上提到过。",
                "还需要一点时间。",
            ),
        ),
        "dev": (
            ("地下室的钥匙", "她表弟的小船", "那家店的菜单", "这个问题的答案"),
            ("放在石头下面。", "最后还是到了。", "大约十块钱。", "就在门的旁边。"),
        ),
        "test": (
            ("厨房里的钟", "他们去农场的计划", "一篮子苹果", "山谷的地图"),
            ("到了另外一边。", "今晚留在我们这儿。", "六点半开始。", "从架子上掉下来了。"),
        ),
    },
}
"""Language, split: beginnings and ends."""
