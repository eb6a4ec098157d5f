"""What a user stores by many ways is found where they look, over a real MemOS server: ``MEMOS_URL``, or ours."""

from served_windows import play, windows
from test_memos_live import config


async def test_two_projects_two_agents_hooks_and_mcp(memos_url, tmp_path):
    async with windows(config(memos_url)["memory"], tmp_path) as served:
        await play(served)
