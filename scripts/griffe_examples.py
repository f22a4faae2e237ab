"""How the site reads the package.

Doctests stand below `Example:` here, and the async form of a method is not listed.
"""  # noqa: INP001

from typing import Any

import griffe


class HouseStyle(griffe.Extension):
    """Renames the section for the parser, and takes out the async forms."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401
        """See `griffe.Extension`."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
        if obj.is_class:
            names = set(obj.members)
            for name in names:
                if name in {f"a{other}" for other in names} | {f"a_{other}" for other in names}:
                    obj.del_member(name)
