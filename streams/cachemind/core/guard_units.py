"""Units of measure and money, each spelling with its name."""

from __future__ import annotations

from typing import Final

from cachemind.core.lexicon import word_set


def _table(rows: str) -> dict[str, str]:
    return {name: row.split()[0] for row in rows.splitlines() for name in row.split()}


UNITS: Final = _table(
    """second sec secs seconds
minute min mins minutes
hour hr hrs hours hourly
day days daily
week wk weeks weekly
month months monthly
quarter quarters quarterly
year yr yrs years yearly annual annually
am
pm
mg milligram milligrams
g gram grams gramme grammes
kg kilo kilos kilogram kilograms
lb lbs
stone
oz ounce ounces
mm millimetre millimetres millimeter millimeters
cm centimetre centimetres centimeter centimeters
metre metres meter meters
km kilometre kilometres kilometer kilometers
inch inches
ft foot feet
yard yards
mile miles mi
mph
kmh kph
ml millilitre millilitres milliliter milliliters
litre litres liter liters
pint pints
gallon gallons
cup cups
tbsp tablespoon tablespoons
tsp teaspoon teaspoons
kb kib kilobyte kilobytes
mb mib megabyte megabytes
gb gib gigabyte gigabytes
tb tib terabyte terabytes
bit bits
byte bytes
mbps
gbps
celsius
fahrenheit
degree degrees °
percent % pct
usd $ dollar dollars
eur € euro euros
gbp £
pound pounds
yen ¥ jpy
inr ₹ rupee rupees
cent cents
watt watts w
kw kilowatt kilowatts
kwh
volt volts v
hz
mhz
ghz
calorie calories kcal"""
)

TIME_UNITS: Final = word_set("second minute hour day week month quarter year")
UNITS_BEFORE: Final = frozenset("$£€¥₹")
"""Signs that stand before the number they belong to."""
