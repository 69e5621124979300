"""Words and wordings of the synthetic company. A second language is a second ``Language``; no code changes.

``{x}`` is the thing a fact is about, ``{y}`` its value, ``{a}`` and ``{b}`` are bystanders. Every subject and body of a
fact names ``{x}`` in full; only the body names ``{y}``.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = tuple(
    "Mira Tomas Aiko Jonas Leila Bruno Freya Hassan Ingrid Kofi Lucia Marek Nadia Oskar Priya Quinn Rosa Samir "
    "Tessa Ugo Vera Wendel Ximena Yusuf Zora Anton Bianca Cedric Daria Emil Farah Gustav Helena Ivan Jasmin Klaus "
    "Lena Matteo Nora Omar Paula Rafael Selma Timo Ursula Viktor Wanda Yara Zeno Alma Boris Clara Dario Elif "
    "Felix Greta Hugo Irma Julio Katja Liam Maya Nils Olga".split()
)
LAST = tuple(
    "Okafor Lindgren Sato Moreau Haddad Ferrari Novak Olsen Mensah Vargas Kowal Rahman Berg Kapoor Doyle Castro "
    "Aziz Brandt Costa Ivanov Fischer Lopez Demir Petrov Romano Larsen Dubois Weber Silva Yilmaz Horvat Jensen "
    "Marino Schmidt Tanaka Bauer Conti Peeters Nunes Roth Sandoval Keller Virtanen Gomez Laurent Mori Nowak "
    "Ortega Pires Quist Ricci Santos Toth Ueda Vogel Walsh Xu Young Zeman Abbas Blom Cruz Dahl Eriksen Falk Grau "
    "Hale Ito Juhl Kerr Lund Mayer Nagy Orban Paz Ritter Serra Thoma Urban Voss Wolf Yamada Zidan Acosta Bishop "
    "Calder Draper Ewing Fuller Garner Hobbs Irving Jarvis Knox Lowell".split()
)
ADJECTIVE = tuple(
    "Amber Silver Crimson Quiet Rapid Golden Hollow Northern Velvet Iron Copper Frozen Hidden Lunar Marble Noble "
    "Open Proud Royal Solar Tidal Urban Vivid Wild Azure Bright Calm Dusty Early Faded Gentle Harvest Indigo Jade "
    "Keen Lively Misty Neon Olive Pale Quick Rustic Sharp Tall Upper Violet Warm Young Bold Civic Deep Eager "
    "Fresh Grand Humble Inner Jolly Lucky Mellow Nimble Plain Rough Sunny Twin".split()
)
NOUN = tuple(
    "Falcon Harbor Meadow Bridge Summit Canyon Lantern River Orchard Beacon Comet Delta Ember Forest Glacier "
    "Horizon Island Jungle Kite Lagoon Mirror Nebula Oasis Prairie Quarry Reef Sierra Temple Union Valley Willow "
    "Anchor Bamboo Cedar Dune Engine Fountain Garden Hammer Ivory Jetty Kestrel Ledger Mosaic Needle Orbit Pillar "
    "Quartz Ribbon Saddle Tower Umbra Vessel Wagon Acorn Barrel Castle Dolphin Eagle Feather Galaxy Helmet Igloo "
    "Jaguar".split()
)
VENDOR = tuple(
    "Norwick Belcor Tarvis Quenby Oskant Velmar Drayco Pimlin Sorvex Lundor Hexley Marvon Cantel Ruskin Wexmor "
    "Galdine Fentrix Ostrey Jarlon Kelvane Brimco Ardent Zephon Trivox Mossby Ellran Corvid Dantis Norbek Pellow "
    "Rydell Sutter Tolvan Umbrex Vantor Wilcor Yardley Zantek Aldine Bexton".split()
)
TRADE = tuple("Systems Logistics Foods Printing Security Travel Cleaning Energy Media Paper".split())
TEAM = tuple("Copper Scarlet Granite Polar Desert Coral Thunder Meteor Pepper Saffron Cobalt Ginger".split())
ANIMAL = tuple(
    "Owls Foxes Herons Lynxes Otters Wolves Ravens Badgers Swans Bears Hawks Moles Robins Toads Seals Hares".split()
)
ROOM = tuple(
    "Birch Maple Aspen Linden Hazel Rowan Alder Poplar Spruce Juniper Laurel Myrtle Cypress Walnut Elm Ash".split()
)
DAY = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


@dataclass(frozen=True, slots=True)
class Relation:
    """``domain`` and ``range`` are entity kinds or "value"; ``keyword`` is what one would search for."""

    domain: str
    range: str
    keyword: str
    noun: str  # how the value is named inside a longer question; empty where the range is a plain value
    questions: tuple[str, ...]
    subjects: tuple[str, ...]
    bodies: tuple[str, ...]


RELATIONS: dict[str, Relation] = {
    "owner": Relation(
        "project",
        "person",
        "owner",
        "the owner of {x}",
        ("Who owns {x}?", "Who is the owner of {x}?"),
        ("{x} owner", "New owner for {x}"),
        (
            "Please note that {y} is the owner of {x} from today.",
            "From this week {y} owns {x}, send open points there.",
            "The owner of {x} is {y}. All questions go there.",
        ),
    ),
    "room": Relation(
        "project",
        "value",
        "review",
        "",
        ("Which room is the review of {x} in?", "Where is the review of {x}?"),
        ("{x} review", "Review of {x}"),
        ("The review of {x} is in room {y} on {t}.", "We meet in {y} on {t} for the {x} review."),
    ),
    "time": Relation(
        "project",
        "value",
        "review",
        "",
        ("When is the review of {x}?", "On which day and time is the review of {x}?"),
        (),
        (),  # told by the same mails as the room
    ),
    "budget": Relation(
        "project",
        "value",
        "budget",
        "",
        ("What is the budget of {x}?", "How much money does {x} have?"),
        ("{x} budget", "Budget for {x}"),
        (
            "Finance has set the budget of {x} to {y} for this year.",
            "The {x} budget is {y}, no more can be had.",
            "We agreed on a budget of {y} for {x}.",
        ),
    ),
    "vendor": Relation(
        "project",
        "vendor",
        "vendor",
        "the vendor of {x}",
        ("Which vendor supplies {x}?", "Who is the vendor of {x}?"),
        ("{x} vendor", "Vendor for {x}"),
        ("We chose {y} as the vendor of {x}.", "The vendor of {x} will be {y}, the papers are signed."),
    ),
    "desk": Relation(
        "person",
        "value",
        "desk",
        "",
        ("Which desk does {x} have?", "Where does {x} sit?"),
        ("{x} desk", "Desk of {x}"),
        ("{x} now sits at desk {y}.", "The new desk of {x} is {y}.", "Please find {x} at desk {y} from Monday."),
    ),
    "phone": Relation(
        "person",
        "value",
        "extension",
        "",
        ("What is the extension of {x}?", "Which extension reaches {x}?"),
        ("{x} extension", "Extension of {x}"),
        ("You can call {x} on extension {y}.", "The extension of {x} is {y}."),
    ),
    "manager": Relation(
        "person",
        "person",
        "manager",
        "the manager of {x}",
        ("Who is the manager of {x}?", "Who does {x} report to?"),
        ("{x} manager", "Manager of {x}"),
        ("{y} is the manager of {x} as of now.", "From May {x} reports to {y}, who is the new manager."),
    ),
    "team": Relation(
        "person",
        "team",
        "team",
        "the team of {x}",
        ("Which team is {x} in?", "What is the team of {x}?"),
        ("{x} team", "Team of {x}"),
        ("{x} joins the team {y} this month.", "The team of {x} is {y}, please say hello."),
    ),
    "floor": Relation(
        "team",
        "value",
        "floor",
        "",
        ("Which floor is {x} on?", "On what floor does {x} work?"),
        ("{x} floor", "Floor of {x}"),
        ("The team {x} works on floor {y} now.", "{x} moved up to floor {y}."),
    ),
    "contract": Relation(
        "vendor",
        "value",
        "contract",
        "",
        ("What is the contract number of {x}?", "Under which contract does {x} work?"),
        ("{x} contract", "Contract with {x}"),
        ("The contract number of {x} is {y}.", "{x} works for us under contract {y}."),
    ),
    "project": Relation(
        "person",
        "project",
        "owner",
        "the project owned by {x}",
        ("Which project does {x} own?", "What is the project owned by {x}?"),
        (),
        (),  # the owner mails read backwards
    ),
}
MOVED_SUBJECTS = ("{x} review moved", "New room for the {x} review")
MOVED_BODIES = (
    "The review of {x} has moved to room {y} on {t}.",
    "Change of plan: we meet in {y} on {t} for the {x} review.",
)
CHATTER = (
    ("{p} lunch", "Lunch for the {p} team is on the terrace, {a} brings the cake."),
    ("{p} slides", "I put the {p} slides on the drive. Ask {a} if something is missing."),
    ("Thanks {p} team", "Great work on {p}. Special thanks to {a} and {b}."),
    ("{a} on leave", "{a} is on leave next week, {b} looks after the plants."),
    ("Lost badge", "{a} lost a badge near the lift. Please give it to {b}."),
    ("{p} status", "{p} is on track. {a} will write the minutes."),
)
FORWARD_NOTE = ("See below.", "For your files.", "Please keep this.")
