import asyncio
import os


async def handler(event):
    print("printed")
    if event == "fail":
        raise ValueError("no")
    if event == "env":
        return os.environ.get("SECRET")
    if event == "sleep":
        await asyncio.sleep(100)
    return {"event": event}
