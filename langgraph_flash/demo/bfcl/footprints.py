"""What each simulated method reads and writes, as slash paths such as `TradingBot/orders`.

Three things make such a table less obvious than it looks. A seeded random generator is state: every draw
moves it. A getter may write: `get_flight_cost` fills a cache. And the login state is read by almost
everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from langgraph_flash.demo.bfcl._package import is_stateless

__all__ = ["METHODS", "Footprint", "Level", "conflicts", "footprint", "intersect"]

Level = Literal["none", "class", "attribute"]
"""How finely footprints are declared: not at all, one resource a class, or one resource an attribute."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources a call reads and the ones it writes.

    Attributes:
        reads: Resources read. One that is also written need not be repeated here.
        writes: Resources written, and possibly read.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


# Method: (reads, writes), each a list of attributes. An attribute that is only ever read (such as the share
# prices) is listed all the same: the table then stays true when somebody adds a method that writes it.
_FILES = ("cwd tree", "")
_CHANGE_FILES = ("cwd", "tree")
_TOKEN = "access_token token_expires_in"  # noqa: S105 - names of attributes
_DASHBOARD = (
    "fuelLevel batteryVoltage doorStatus acTemperature fanSpeed acMode humidityLevel headLightStatus "
    "parkingBrakeStatus _parkingBrakeForce _slopeAngle brakePedalStatus _brakePedalForce engine_state"
)
_TIRES = "frontLeftTirePressure frontRightTirePressure rearLeftTirePressure rearRightTirePressure"
_PURE = ("", "")

_TABLE: dict[str, dict[str, tuple[str, str]]] = {
    # Two resources stand for the whole file system: which directory is current, and the tree of files.
    "GorillaFileSystem": {
        "cat": _FILES,
        "cd": ("tree", "cwd"),
        "cp": _CHANGE_FILES,
        "diff": _FILES,
        "du": _FILES,
        "echo": _CHANGE_FILES,
        "find": _FILES,
        "grep": _FILES,
        "ls": _FILES,
        "mkdir": _CHANGE_FILES,
        "mv": _CHANGE_FILES,
        "rm": _CHANGE_FILES,
        "rmdir": _CHANGE_FILES,
        "sort": _FILES,
        "tail": _FILES,
        "touch": _CHANGE_FILES,
        "wc": _FILES,
    },
    "MathAPI": {"logarithm": _PURE, "mean": _PURE, "standard_deviation": _PURE},
    "MessageAPI": {
        "add_contact": ("", "user_map user_count"),
        "delete_message": ("current_user", "inbox"),
        "get_user_id": ("user_map", ""),
        "message_login": ("user_map", "current_user"),
        "send_message": ("current_user user_map", "_random generated_ids inbox message_count"),
        "view_messages_sent": ("current_user inbox", ""),
    },
    "TicketAPI": {
        "close_ticket": ("", "ticket_queue"),
        "create_ticket": ("current_user", "ticket_queue ticket_counter"),
        "edit_ticket": ("", "ticket_queue"),
        "get_ticket": ("ticket_queue", ""),
        "resolve_ticket": ("", "ticket_queue"),
        "ticket_login": ("", "current_user"),
    },
    "TradingBot": {
        "add_to_watchlist": ("stocks", "watch_list"),
        "cancel_order": ("", "orders"),
        "fund_account": ("authenticated", "account_info transaction_history _random"),
        "get_account_info": ("authenticated account_info", ""),
        "get_available_stocks": _PURE,
        "get_current_time": _PURE,
        "get_order_details": ("orders", ""),
        "get_stock_info": ("stocks", ""),
        "get_watchlist": ("authenticated watch_list", ""),
        "place_order": ("authenticated stocks account_info", "orders order_counter"),
        "remove_stock_from_watchlist": ("authenticated", "watch_list"),
        "trading_logout": ("", "authenticated"),
        "withdraw_funds": ("authenticated market_status", "account_info transaction_history _random"),
    },
    "TravelAPI": {
        "authenticate_travel": (
            "",
            f"_random {_TOKEN} token_type token_scope user_first_name user_last_name",
        ),
        "book_flight": (
            f"{_TOKEN} budget_limit",
            "_random _flight_cost_lookup booking_record credit_card_list",
        ),
        "cancel_booking": (_TOKEN, "booking_record credit_card_list"),
        "compute_exchange_rate": _PURE,
        "contact_customer_support": ("booking_record", ""),
        "get_credit_card_balance": (f"{_TOKEN} credit_card_list", ""),
        "get_flight_cost": ("", "_flight_cost_lookup"),
        "get_nearest_airport_by_city": _PURE,
        "list_all_airports": _PURE,
        "purchase_insurance": (f"{_TOKEN} budget_limit booking_record", "_random credit_card_list"),
        "register_credit_card": (_TOKEN, "_random credit_card_list"),
        "retrieve_invoice": (f"{_TOKEN} booking_record", ""),
        "set_budget_limit": (_TOKEN, "budget_limit"),
        "verify_traveler_information": ("user_first_name user_last_name", ""),
    },
    "TwitterAPI": {
        "authenticate_twitter": ("username password", "authenticated"),
        "comment": ("authenticated username tweets", "comments"),
        "mention": ("", "tweets"),
        "post_tweet": ("authenticated username", "tweets tweet_counter"),
        "retweet": ("authenticated username tweets", "retweets"),
    },
    "VehicleControlAPI": {
        "activateParkingBrake": ("", "parkingBrakeStatus _parkingBrakeForce _slopeAngle"),
        "check_tire_pressure": (_TIRES, ""),
        "displayCarStatus": (_DASHBOARD, ""),
        "estimate_distance": _PURE,
        "estimate_drive_feasibility_by_mileage": ("fuelLevel", ""),
        "fillFuelTank": ("", "fuelLevel"),
        "find_nearest_tire_shop": _PURE,
        "gallon_to_liter": _PURE,
        "get_outside_temperature_from_google": ("", "_random"),
        "get_zipcode_based_on_city": _PURE,
        "liter_to_gallon": _PURE,
        "lockDoors": ("", "doorStatus remainingUnlockedDoors"),
        "pressBrakePedal": ("", "brakePedalStatus _brakePedalForce"),
        "setCruiseControl": ("engine_state", "cruiseStatus distanceToNextVehicle"),
        "setHeadlights": ("", "headLightStatus"),
        "set_navigation": ("", "destination"),
        "startEngine": (
            "remainingUnlockedDoors doorStatus brakePedalStatus _brakePedalForce fuelLevel batteryVoltage",
            "engine_state",
        ),
    },
}

METHODS: frozenset[tuple[str, str]] = frozenset((cls, method) for cls, methods in _TABLE.items() for method in methods)
"""Every (class, method) whose attributes are declared: the ones the programs call."""


def footprint(cls: str, method: str, level: Level) -> Footprint | None:
    """The declaration of one method.

    Args:
        cls: Class name.
        method: Method name.
        level: How finely to declare.

    Returns:
        The footprint; `None` at level `none`, where nothing is declared. A method that no program calls has
        not been studied, so it reads and writes its whole class even at level `attribute`.
    """
    if level == "none":
        return None
    studied = _TABLE[cls].get(method) if level == "attribute" else None
    if studied is not None:
        reads, writes = (tuple(f"{cls}/{name}" for name in names.split()) for names in studied)
        return Footprint(reads, writes)
    if is_stateless(cls):
        return Footprint()
    return Footprint((cls,), (cls,))


def intersect(a: str, b: str) -> bool:
    """Whether two resources overlap: equal paths, or one an ancestor of the other."""
    return a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/")


def conflicts(a: Footprint, b: Footprint) -> bool:
    """Whether two calls must keep their order: one writes what the other reads or writes."""
    return any(intersect(x, y) for x in a.writes for y in (*b.reads, *b.writes)) or any(
        intersect(x, y) for x in a.reads for y in b.writes
    )
