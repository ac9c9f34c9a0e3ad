"""The README and the addresses that the package index shows; hatchling runs this when it builds the package.

The index shows the README outside of the repository, so links to files become addresses there. The environment variable
DDPN_REPOSITORY names the repository (release.yml sets it). Without it, links to files become plain text.
"""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://arxiv.org/abs/2406.09262"
#: A link to a file or, with an exclamation mark, a picture in a file.
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")


def rewrite_links(text: str, repository: str, version: str) -> str:
    """Replace paths in the links of a Markdown text by addresses in the repository, or links by their words."""

    def rewrite(link: re.Match[str]) -> str:
        mark, words, path = link.groups()
        if not repository:
            return "" if mark else words
        return f"{mark}[{words}]({repository}/{'raw' if mark else 'blob'}/v{version}/{path})"

    return _LINK.sub(rewrite, text)


def list_addresses(repository: str) -> dict[str, str]:
    """List the addresses of the project: the paper and, if the repository is known, its pages."""
    if not repository:
        return {"Paper": PAPER}
    owner, name = urlsplit(repository).path.strip("/").split("/")
    return {
        "Documentation": f"https://{owner}.github.io/{name}/",
        "Repository": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Paper": PAPER,
    }


class ReadmeHook(MetadataHookInterface):
    """Set the fields `readme` and `urls` of the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the two fields."""
        repository = os.environ.get("DDPN_REPOSITORY", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        readme = rewrite_links(text, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        metadata["urls"] = list_addresses(repository)
