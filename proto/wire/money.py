"""Amounts of money, for people."""


def dollars(amount: float) -> str:
    """US dollars with as many places as a small amount needs: $12.50, $0.10, $0.0912."""
    for places in (2, 4, 6):
        if amount >= 100 / 10**places or round(amount, places) == amount:
            return f"${amount:,.{places}f}"
    return f"${amount:.9f}".rstrip("0")
