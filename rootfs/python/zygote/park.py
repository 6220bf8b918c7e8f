async def park(agent, fds):
    agent.link.say({"is": "failed", "why": "not yet"})
