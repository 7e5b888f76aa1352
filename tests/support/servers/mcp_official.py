"""A server of the official SDK: structured arguments by reference, structured results, progress."""

import math

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel


class Point(BaseModel):
    x: float
    y: float


server = MCPServer("official")


@server.tool()
def distance(start: Point, end: Point) -> float:
    """How far it is."""
    return math.hypot(start.x - end.x, start.y - end.y)


@server.tool()
async def slowly(steps: int, ctx: Context) -> str:
    """Counts."""
    for step in range(steps):
        await ctx.report_progress(step, steps)
        await ctx.info("step")
    return "counted"


if __name__ == "__main__":
    server.run()
