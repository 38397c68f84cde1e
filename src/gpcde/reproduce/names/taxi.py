"""The models, sizes and conditions of the taxi experiment."""

COMPONENTS = (1, 5, 10, 50)
STOPPED = " early-stopped"
FREE_FORM, WARPED, DEFAULT = "GP-CDE free-form", "GP-CDE warped", "GPCDE()"
BENT = FREE_FORM + ", bent"
PRODUCT, LOCAL = "C-KDE product", "C-KDE cross-validated"
MODELS = (
    "U-KDE",
    "C-KDE",
    LOCAL,
    PRODUCT,
    *(f"MDN-{k}" for k in COMPONENTS),
    *(f"MDN-{k}{STOPPED}" for k in COMPONENTS),
    "GP-LVM",
    "GP",
    "GP-CDE",
    FREE_FORM,
    BENT,
    WARPED,
    DEFAULT,
)
"""The rows of the table."""

SIZES = {"300": 300, "1K": 1_000, "5K": 5_000, "all": 1_000_000}
"""Training rows; all there are, where there are fewer."""

DAY = "day"
"""The data on which the cost of a step is measured."""

WEDNESDAY, SATURDAY = 6, 2
"""Days since the first of January 1970, a Thursday, modulo 7."""

CONDITIONS = (
    ("Penn Station, Wednesday 8:30", (-73.9935, 40.7505), WEDNESDAY, 8.5),
    ("Upper East Side, Saturday 20:00", (-73.9570, 40.7740), SATURDAY, 20.0),
)
"""Pick-ups of which the figure shows the densities: their name, place, weekday and hour."""
