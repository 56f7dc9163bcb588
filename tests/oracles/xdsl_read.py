"""xDSL reads texts and prints them; run by the Python of `.venv-oracles/xdsl`.

In: a JSON list of texts. Out: for each either {"text": what xDSL prints} or {"error": why it refuses}.
As `xdsl-opt --allow-unregistered-dialect --print-op-generic`, without a process for each text.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

import json
import sys
from io import StringIO

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException


def read(context: Context, text: str) -> dict[str, str]:
    try:
        module = Parser(context, text).parse_module()
        module.verify()
    except (ParseError, VerifyException) as error:
        return {"error": str(error)}
    out = StringIO()
    Printer(out, print_generic_format=True).print_op(module)
    return {"text": out.getvalue()}


def main() -> None:
    context = Context(allow_unregistered=True)
    for name, dialect in get_all_dialects().items():
        context.register_dialect(name, dialect)
    json.dump([read(context, text) for text in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
