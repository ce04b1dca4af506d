"""kopf, without the client library that it would load only to recognise its objects, none of which it is ever given.

It is a seventh of the start of the operator and 10 MB of its memory, and kopf has no option against it. Where the
client library cannot be imported, it does without (`kopf/_cogs/helpers/thirdparty.py`).
"""

import sys
from typing import Any, Final

_CLIENT: Final = "kubernetes"

_hidden = _CLIENT not in sys.modules
if _hidden:
    # None makes an import fail; a kubeconfig is read by the library itself, later.
    modules: dict[str, Any] = sys.modules
    modules[_CLIENT] = None
try:
    import kopf as kopf  # noqa: PLC0414 -- exported
finally:
    if _hidden:
        del sys.modules[_CLIENT]
